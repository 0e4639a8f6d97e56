"""Logins from this host to its peers by ssh, as mpirun would: as the job's user, in batch mode, keys checked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..host import Host
from .login import User

if TYPE_CHECKING:
    from .answer_types import LoginTry, ReachFacts

AT_ONCE = 32
CONNECT_S = 10
LIMIT_S = 25.0
# No options on host keys: the ssh configuration applies as for mpirun, and in batch mode an unknown key fails.
OPTIONS = ("-n", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "UpdateHostKeys=no")


def read(host: Host, request: Mapping[str, Any]) -> ReachFacts:
    """{user, peers}: name -> {ok, hostname, error, seconds}. `hostname`: the peer's own."""
    user: User = request["user"]
    peers = list(request.get("peers", ()))
    prefix = _as(host, user)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(lambda peer: _try(host, [*prefix, *_ssh(request, peer)]), peers))
    return {"user": user.name, "peers": {p["name"]: outcome for p, outcome in zip(peers, outcomes)}, "unread": {}}


def _ssh(request: Mapping[str, Any], peer: Mapping[str, str]) -> list[str]:
    return ["ssh", *request.get("ssh_args", ()), *OPTIONS, "--", peer["address"], "uname -n"]


def _as(host: Host, user: User) -> list[str]:
    """Command prefix by which root becomes the job's user, with a forwarded ssh agent."""
    agent = ["env", f"SSH_AUTH_SOCK={user.agent}"] if user.agent else []
    become = ["runuser", "-u", user.name, "--"] if user.name and user.uid != 0 and user.process != "self" else []
    return [*become, *agent]


def _try(host: Host, argv: list[str]) -> LoginTry:
    started = time.monotonic()
    result = host.run(*argv, limit=LIMIT_S)
    return {
        "ok": result.ok,
        "hostname": result.out.strip().rpartition("\n")[2] or None if result.ok else None,
        "error": None if result.ok else result.last_line,
        "seconds": round(time.monotonic() - started, 3),
    }
