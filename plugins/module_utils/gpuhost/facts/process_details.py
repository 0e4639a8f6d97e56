"""One process on a GPU: its command, user, start, state and control groups, from /proc."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..host import Host

HERTZ = 100  # USER_HZ, in which the kernel reports times to every program
LONGEST = 4096  # characters of a command line
NOBODY = 2**32 - 1  # loginuid of a process that no login started
BLOCKED = "D"
# Set by Slurm in each task; no other variable leaves the host.
SLURM = (
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
)
MOUNTS = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log")


def read(host: Host, pid: int, boot: int | None) -> dict[str, Any] | None:
    """Facts of a process; None if it does not exist, or is hidden. OSError if it can be seen, and not be read.

    Any other value that cannot be read is None.
    `state`: R, S, D, Z …; `blocked_in`: kernel function of one in state D. `since`: Unix time, for which `boot` is
    needed; `start_ticks` differs from that of a later process with its number. `login_uid`: user who logged in, also
    below su and sudo. `slurm`: variables of its job. The command line of a process in state D is not read: that blocks.
    """
    folder = f"/proc/{pid}"
    stat = printable(host.read_or_none(f"{folder}/stat") or "")
    if not stat or ")" not in stat:
        return None
    name, rest = stat[stat.find("(") + 1 : stat.rfind(")")], stat[stat.rfind(")") + 2 :].split()
    state = rest[0] if rest else None
    ticks = int(rest[19]) if len(rest) > 19 and rest[19].isdigit() else None
    cgroup = _text(host, f"{folder}/cgroup")
    blocked = state == BLOCKED
    return {
        "pid": pid,
        "name": name,
        "command": None if blocked else _command(host, folder),
        "state": state,
        "blocked_in": (_text(host, f"{folder}/wchan") or None) if blocked else None,
        "since": round(boot + ticks / HERTZ) if boot is not None and ticks is not None else None,
        "start_ticks": ticks,
        "uid": _uid(host, folder),
        "login_uid": _login_uid(host, folder),
        "cgroup": cgroup,
        "mounts": _mounts(host, folder) if _is_hidden(cgroup) else "",
        "slurm": {} if blocked or "slurm" not in (cgroup or "") else variables(host, pid),
    }


def variables(host: Host, pid: int) -> dict[str, str]:
    """Variables of Slurm in the environment of a process; empty if it has none, or may not be read."""
    text = _text(host, f"/proc/{pid}/environ") or ""
    rows = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, equals, value in rows if equals and name in SLURM}


def boot_time(host: Host) -> int | None:
    """Unix time of the boot, to which start times of processes are relative."""
    match = re.search(r"^btime (\d+)$", _text(host, "/proc/stat") or "", re.MULTILINE)
    return int(match.group(1)) if match else None


def _text(host: Host, path: str) -> str | None:
    """Content of a file; None if it cannot be read. Bytes that are not UTF-8 are replaced."""
    try:
        text = host.read_or_none(path)
    except OSError:
        return None
    return None if text is None else printable(text)


def printable(text: str) -> str:
    """Text with bytes that are not UTF-8 replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _command(host: Host, folder: str) -> str | None:
    """Arguments, joined by blanks; cut between two of them, so that no part of a secret loses its name."""
    text = (_text(host, f"{folder}/cmdline") or "").rstrip("\0")
    if len(text) > LONGEST:
        text = text[:LONGEST].rpartition("\0")[0] + "\0…"
    return text.replace("\0", " ").strip() or None


def _status(host: Host, folder: str) -> Mapping[str, str]:
    return dict(line.partition(":")[::2] for line in (_text(host, f"{folder}/status") or "").splitlines())


def _uid(host: Host, folder: str) -> int | None:
    """Real user: the owner of the folder is root for a process that may not be traced."""
    uids = _status(host, folder).get("Uid", "").split()
    return int(uids[0]) if uids and uids[0].isdigit() else None


def _login_uid(host: Host, folder: str) -> int | None:
    text = (_text(host, f"{folder}/loginuid") or "").strip()
    return int(text) if text.isdigit() and int(text) != NOBODY else None


def _is_hidden(cgroup: str | None) -> bool:
    """True if control groups name no owner: the path is relative to a namespace, or the root."""
    paths = [line.split(":", 2)[2] for line in (cgroup or "").splitlines() if line.count(":") > 1]
    return not paths or any(path.startswith("/..") for path in paths) or set(paths) == {"/"}


def _mounts(host: Host, folder: str) -> str:
    """Mounts that container runtimes make from folders with ids in their names."""
    rows = (_text(host, f"{folder}/mountinfo") or "").splitlines()
    return "\n".join(row for row in rows if len(row.split(" ")) > 4 and row.split(" ")[4] in MOUNTS)
