"""Who the job's user is: whoever logged in, whatever sudo made of them since."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..host import Host


class User(NamedTuple):
    """`process` is the oldest we know of that runs as this user: its limits and environment are those of a login."""

    uid: int
    name: str | None
    process: str  # "self" or a number
    agent: str  # SSH_AUTH_SOCK of the login; "" where it has none
    came_to: str = ""  # our own address that the login came to; "" where it came by no ssh


def who(host: Host) -> User:
    """Ask the processes above us: below sudo, the login's own shell still holds what a job would get."""
    uid = (
        int(os.environ["SUDO_UID"]) if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit() else os.geteuid()
    )
    process = _process_of(host, uid)
    environment = _environment(host, process)
    connection = environment.get("SSH_CONNECTION", "").split()  # their address and port, ours
    came_to = connection[2] if len(connection) == 4 else ""
    return User(uid, _name(host, uid), process, environment.get("SSH_AUTH_SOCK", ""), came_to)


def _process_of(host: Host, uid: int) -> str:
    """Ourselves where we are that user, else the nearest process above that is."""
    process = "self"
    for _ in range(32):
        try:
            text = host.read_or_none(f"/proc/{process}/status") or ""
        except OSError:  # whose process it is stays unknown
            break
        status = dict(line.partition(":")[::2] for line in text.splitlines())
        if status.get("Uid", "").split()[:2] == [str(uid), str(uid)]:
            return process
        process = status.get("PPid", "").strip()
        if not process.isdigit() or process == "0":
            break
    return ""


def _name(host: Host, uid: int) -> str | None:
    import pwd  # of the host we run on: a recorded folder has its own

    try:
        if not host.root:
            return pwd.getpwuid(uid).pw_name
        rows = [line.split(":") for line in (host.read_or_none("/etc/passwd") or "").splitlines()]
    except (KeyError, OSError):
        return None
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(uid)), None)


def _environment(host: Host, process: str) -> dict[str, str]:
    """The login's own, with what sudo took away from ours: a forwarded ssh agent, and where it came to."""
    try:
        text = host.read_or_none(f"/proc/{process}/environ") if process else None
    except OSError:
        return {}
    rows = (entry.partition("=") for entry in (text or "").split("\0"))
    return {name: value for name, found, value in rows if found}
