"""Use of sessions: how busy their GPUs are, and ssh connections of their accounts. What cannot be read is None."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

from .. import gpus
from ..host import Host
from .gpu_sessions import _open_files, _uids

QUERY = ("--query-gpu=gpu_bus_id,utilization.gpu", "--format=csv,noheader,nounits")
LIMIT_S = 30.0  # eight GPUs without persistence mode take ten seconds and more
SSHD = ("sshd", "sshd-session")  # the process of a connection, up to OpenSSH 9.7 and since
TABLE, TABLE_6 = "/proc/net/tcp", "/proc/net/tcp6"
ESTABLISHED = "01"  # include/net/tcp_states.h


def read(host: Host, sessions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """{session, gpu_percent, connections} of each session: a row of `session`, `person`, `people`, `devices` (minors).

    `gpu_percent`: the busiest of its GPUs. `connections`: ssh connections of its accounts, with or without a terminal.
    """
    percents, connections = _gpu_percents(host), _connections()
    return [
        {
            "session": row["session"],
            "gpu_percent": _busiest([percents.get(minor) for minor in row["devices"]]),
            "connections": _sum(
                [
                    _of_person(connections, row["person"], None),
                    # Who has no account here cannot be logged in; it must not make the use of a session unknown.
                    *(_of_person(connections, person, 0) for person in row.get("people", ())),
                ]
            ),
        }
        for row in sessions
    ]


def _sum(numbers: Sequence[int | None]) -> int | None:
    """The sum; None if one is unknown and no other is above 0."""
    known = [number for number in numbers if number is not None]
    return sum(known) if any(known) or len(known) == len(numbers) else None


def _busiest(percents: Sequence[float | None]) -> float | None:
    """The highest; None if one is unknown and no other is busy."""
    known = [percent for percent in percents if percent is not None]
    return max(known) if known and (any(known) or len(known) == len(percents)) else None


def _gpu_percents(host: Host) -> dict[int, float]:
    """Minor number -> per cent; without those that nvidia-smi does not name as a number, such as GPUs with MIG."""
    percents: dict[int, float] = {}
    try:
        minors = {gpu.address.lower(): gpu.minor for gpu in gpus.gpus(host) if gpu.minor is not None}
    except OSError:
        return percents
    result = host.run("nvidia-smi", *QUERY, limit=LIMIT_S)
    for line in result.out.splitlines() if result.ok else ():
        address, _, percent = line.partition(",")
        minor = minors.get(address.strip().lower()[-12:])  # its domain has four digits more than the kernel's
        if minor is not None and percent.strip().isdigit() and int(percent) <= 100:
            percents[minor] = float(percent)
    return percents


def _connections() -> dict[int, int] | None:
    """Uid -> established ssh connections; None if they cannot be seen."""
    try:
        # A kernel without IPv6 has no second table.
        tables = [TABLE, *([TABLE_6] if os.path.exists(TABLE_6) else [])]
        sockets = {f"socket:[{inode}]" for table in tables for inode in _established(table)}
        found: dict[int, int] = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
                if _command(f"/proc/{name}") in SSHD and sockets & set(_open_files(f"/proc/{name}")):
                    for uid in _uids(f"/proc/{name}"):
                        found[uid] = found.get(uid, 0) + 1
    except OSError:
        return None
    return found


def _established(table: str) -> list[str]:
    """Inodes of established connections (proc(5), /proc/net/tcp)."""
    with open(table) as stream:
        rows = [line.split() for line in stream][1:]
    return [row[9] for row in rows if len(row) > 9 and row[3] == ESTABLISHED]


def _command(process: str) -> str:
    with open(f"{process}/comm") as stream:
        return stream.read().rstrip("\n")


def _of_person(connections: Mapping[int, int] | None, person: str, without_account: int | None) -> int | None:
    try:
        return None if connections is None else connections.get(pwd.getpwnam(person).pw_uid, 0)
    except KeyError:
        return without_account
