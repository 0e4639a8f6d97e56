"""Interfaces, names and ports, as this pod sees them; nothing is sent to others but the opening of a connection."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from functools import partial
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

CONNECT_S = 3.0
SHARE = 0.6  # of the time that a pod has: a name server that is gone would take all of it, and the rest with it
AT_ONCE = 32
ESTABLISHED = "01"  # net/tcp_states.h
REFUSED = "refused"


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{interfaces, names, ssh, master, hostfile}.

    `names`: host -> its addresses, or a text that says why it has none. `ssh`: pod -> "open", "refused", or what went
    wrong. `master`: the same of the training's port, "connected" where a connection of the job to it stands.
    """
    rows = _connections(host)
    limit_s = float(request["limit_s"]) * SHARE
    asked: dict[tuple[str, str], Callable[[], Any]] = {}
    asked.update({("names", name): partial(_resolved, name) for name in request["names"]})
    asked.update({("ssh", each["pod"]): partial(_reached, each["host"], each["port"]) for each in request["ssh"]})
    asked["master", ""] = partial(_master, rows, request["master"])
    told = _within(limit_s, asked)
    return {
        "interfaces": _interfaces(host),
        "names": {name: how for (what, name), how in told.items() if what == "names"},
        "ssh": {name: how for (what, name), how in told.items() if what == "ssh"},
        "master": told["master", ""],
        "hostfile": host.read_or_none(request["hostfile"]),
    }


def _within(limit_s: float, asked: Mapping[tuple[str, str], Callable[[], Any]]) -> dict[tuple[str, str], Any]:
    """Every answer, or that there was none in time; nobody waits for who is late."""
    end = time.monotonic() + limit_s
    pool = ThreadPoolExecutor(AT_ONCE)
    jobs: dict[tuple[str, str], Future[Any]] = {each: pool.submit(ask) for each, ask in asked.items()}
    found = {}
    for each, job in jobs.items():
        try:
            found[each] = job.result(max(0.0, end - time.monotonic()))
        except Late:
            found[each] = f"no answer within {limit_s:g} s"
    for job in jobs.values():
        job.cancel()
    pool.shutdown(wait=False)
    return found


def _interfaces(host: Host) -> dict[str, dict[str, Any]]:
    """By name: {state, mtu}."""
    found = {}
    for path in host.glob("/sys/class/net/*"):
        name = path.rpartition("/")[2]
        mtu = _value(host, f"{path}/mtu")
        found[name] = {
            "state": _value(host, f"{path}/operstate"),
            "mtu": int(mtu) if mtu else None,
        }
    return found


def _value(host: Host, path: str) -> str | None:
    try:
        return host.value(path)
    except OSError:  # an interface without a link has no speed
        return None


def _resolved(name: str) -> list[str] | str:
    try:
        return sorted({str(row[4][0]) for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        return str(error.strerror or error)


def _reached(host: str, port: int) -> str:
    try:
        with contextlib.closing(socket.create_connection((host, port), CONNECT_S)):
            return "open"
    except ConnectionRefusedError:
        return REFUSED
    except socket.timeout:  # noqa: UP041 - before Python 3.10 it is not TimeoutError
        return f"no answer within {CONNECT_S:g} s"
    except OSError as error:
        return error.strerror or errno.errorcode.get(error.errno or 0, str(error))


def _master(rows: Sequence[tuple[int, int, str]], master: Mapping[str, Any] | None) -> str | None:
    """Whether the job's own connection stands, before a new one is opened; None where it is not asked for."""
    if master is None:
        return None
    port = int(master["port"])
    if any(state == ESTABLISHED and port in (local, remote) for local, remote, state in rows):
        return "connected"
    return _reached(str(master["host"]), port)


def _connections(host: Host) -> list[tuple[int, int, str]]:
    """(local port, remote port, state) of every TCP socket of the pod."""
    found = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (host.read_or_none(path) or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 3:
                found.append((_port(words[1]), _port(words[2]), words[3]))
    return found


def _port(text: str) -> int:
    return int(text.rpartition(":")[2], 16)
