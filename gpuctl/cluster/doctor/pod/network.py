"""Interfaces, DNS names and ports, as this pod sees them; other pods only see a connection that opens and closes."""

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
SHARE = 0.6  # of the pod's time limit: a name server that does not answer would use all of it
AT_ONCE = 32
ESTABLISHED = "01"  # net/tcp_states.h
REFUSED = "refused"


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {interfaces, names, ssh, master, hostfile}.

    `names`: addresses of each host, or the error as text. `ssh`: by pod "open", "refused" or the error. `master`: the
    same for the rendezvous port, or "connected" if the job has a connection to it; None if not requested.
    """
    rows = _connections(host)
    limit_s = float(request["limit_s"]) * SHARE
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    calls.update({("names", name): partial(_resolved, name) for name in request["names"]})
    calls.update({("ssh", peer["pod"]): partial(_reached, peer["host"], peer["port"]) for peer in request["ssh"]})
    calls["master", ""] = partial(_master, rows, request["master"])
    results = _within(limit_s, calls)
    return {
        "interfaces": _interfaces(host),
        "names": {name: result for (kind, name), result in results.items() if kind == "names"},
        "ssh": {name: result for (kind, name), result in results.items() if kind == "ssh"},
        "master": results["master", ""],
        "hostfile": host.read_or_none(request["hostfile"]),
    }


def _within(limit_s: float, calls: Mapping[tuple[str, str], Callable[[], Any]]) -> dict[tuple[str, str], Any]:
    """Run all calls concurrently; the result of a late one is a text that says so."""
    end = time.monotonic() + limit_s
    pool = ThreadPoolExecutor(AT_ONCE)
    jobs: dict[tuple[str, str], Future[Any]] = {key: pool.submit(call) for key, call in calls.items()}
    results = {}
    for key, job in jobs.items():
        try:
            results[key] = job.result(max(0.0, end - time.monotonic()))
        except Late:
            results[key] = f"no answer within {limit_s:g} s"
    for job in jobs.values():
        job.cancel()
    pool.shutdown(wait=False)
    return results


def _interfaces(host: Host) -> dict[str, dict[str, Any]]:
    """Return {state, mtu} by interface name."""
    interfaces = {}
    for path in host.glob("/sys/class/net/*"):
        name = path.rpartition("/")[2]
        mtu = _value(host, f"{path}/mtu")
        interfaces[name] = {
            "state": _value(host, f"{path}/operstate"),
            "mtu": int(mtu) if mtu else None,
        }
    return interfaces


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
    """Check for an existing connection of the job before opening a new one; None if not requested."""
    if master is None:
        return None
    port = int(master["port"])
    if any(state == ESTABLISHED and port in (local, remote) for local, remote, state in rows):
        return "connected"
    return _reached(str(master["host"]), port)


def _connections(host: Host) -> list[tuple[int, int, str]]:
    """Return (local port, remote port, state) of every TCP socket in the pod."""
    sockets = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (host.read_or_none(path) or "").splitlines()[1:]:
            columns = line.split()
            if len(columns) > 3:
                sockets.append((_port(columns[1]), _port(columns[2]), columns[3]))
    return sockets


def _port(text: str) -> int:
    return int(text.rpartition(":")[2], 16)
