"""The job's user: the one who logged in, also below sudo."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..host import Host


class User(NamedTuple):
    """The login user. Limits and environment of `process` are those of the login."""

    uid: int
    name: str | None
    process: str  # "self" or a number
    agent: str  # SSH_AUTH_SOCK of the login; "" if it has none
    came_to: str = ""  # address of this host that ssh connected to; "" without ssh


def login_user(host: Host) -> User:
    """Find the login user in our parent processes: below sudo, the login shell still has its limits and environment."""
    uid = (
        int(os.environ["SUDO_UID"]) if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit() else os.geteuid()
    )
    process = _process_of(host, uid)
    environment = _environment(host, process)
    connection = environment.get("SSH_CONNECTION", "").split()  # their address and port, ours
    came_to = connection[2] if len(connection) == 4 else ""
    return User(uid, _name(host, uid), process, environment.get("SSH_AUTH_SOCK", ""), came_to)


def _process_of(host: Host, uid: int) -> str:
    """This process, or its nearest parent that runs as the user; "" if there is none."""
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
    import pwd  # of this machine; a recorded folder has its own file

    try:
        if not host.root:
            return pwd.getpwuid(uid).pw_name
        rows = [line.split(":") for line in (host.read_or_none("/etc/passwd") or "").splitlines()]
    except (KeyError, OSError):
        return None
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(uid)), None)


def _environment(host: Host, process: str) -> dict[str, str]:
    """The login's environment, which has the variables that sudo removes: ssh agent and connection."""
    try:
        text = host.read_or_none(f"/proc/{process}/environ") if process else None
    except OSError:
        return {}
    rows = (entry.partition("=") for entry in (text or "").split("\0"))
    return {name: value for name, equals, value in rows if equals}
