"""Whether this host gets onto its peers by ssh, as the job's user and as mpirun would: unasked, keys checked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..host import Host
from .login import User

AT_ONCE = 32
CONNECT_S = 10
LIMIT_S = 25.0
# Nothing about host keys: what the user's and the host's ssh configuration say of them holds here as for mpirun,
# and an unknown key fails, since nobody is there to be asked.
OPTIONS = ("-n", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "UpdateHostKeys=no")


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{user, peers}: name -> {ok, hostname, said, seconds}. `hostname`: what the peer calls itself."""
    user: User = request["user"]
    wanted = list(request.get("peers", ()))
    prefix = _as(host, user)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda peer: _try(host, [*prefix, *_ssh(request, peer)]), wanted))
    return {"user": user.name, "peers": {p["name"]: told for p, told in zip(wanted, found)}, "unread": {}}


def _ssh(request: Mapping[str, Any], peer: Mapping[str, str]) -> list[str]:
    return ["ssh", *request.get("ssh_args", ()), *OPTIONS, "--", peer["address"], "uname -n"]


def _as(host: Host, user: User) -> list[str]:
    """Root turns into the job's user, whose keys it is about; a forwarded agent goes along."""
    agent = ["env", f"SSH_AUTH_SOCK={user.agent}"] if user.agent else []
    become = ["runuser", "-u", user.name, "--"] if user.name and user.uid != 0 and user.process != "self" else []
    return [*become, *agent]


def _try(host: Host, argv: list[str]) -> dict[str, Any]:
    started = time.monotonic()
    said = host.run(*argv, limit=LIMIT_S)
    return {
        "ok": said.ok,
        "hostname": said.out.strip().rpartition("\n")[2] or None if said.ok else None,
        "said": None if said.ok else said.said,
        "seconds": round(time.monotonic() - started, 3),
    }
