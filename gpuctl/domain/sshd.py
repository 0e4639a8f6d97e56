"""Configuration of the sshd that gpuctl runs in a pod."""

from __future__ import annotations


def keys_only(port: int, host_key: str, authorized: str, *more: str) -> str:
    """The text of an sshd_config for any user that accepts only these keys. `more`: further lines."""
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
