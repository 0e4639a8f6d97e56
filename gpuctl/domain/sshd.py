"""The settings of an sshd of our own, in a pod."""

from __future__ import annotations


def keys_only(port: int, host_key: str, authorized: str, *more: str) -> str:
    """Its file: it runs as any user, and takes these keys and nothing else. `more`: lines besides."""
    lines = [
        f"Port {port}",
        f"HostKey {host_key}",
        f"AuthorizedKeysFile {authorized}",
        "StrictModes no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        "PidFile none",
        "PrintMotd no",
        "X11Forwarding no",
        "MaxStartups 64",
        *more,
    ]
    return "".join(f"{line}\n" for line in lines)
