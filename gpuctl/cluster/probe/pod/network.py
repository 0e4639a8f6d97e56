"""What a pod finds around itself: names in DNS, and a port of another pod."""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import threading
import time
from typing import Any

MAGIC = b"gpuctl-here\n"
AT_ONCE = 32


def names(hosts: list[str], limit_s: float) -> dict[str, Any]:
    """The addresses of each name; a text where there are none: why, or "late"."""
    found: dict[str, Any] = {}
    waiting: queue.Queue[str] = queue.Queue()
    for host in hosts:
        waiting.put(host)
    for _ in range(min(AT_ONCE, len(hosts))):
        # Resolvers know no limit of ours; what is late is left behind.
        threading.Thread(target=_resolve, args=(waiting, found), daemon=True).start()
    end = time.monotonic() + limit_s
    while len(found) < len(hosts) and time.monotonic() < end:
        time.sleep(0.02)
    return {host: found.get(host, "late") for host in hosts}


def _resolve(waiting: queue.Queue[str], found: dict[str, Any]) -> None:
    while True:
        try:
            host = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            found[host] = sorted({str(row[4][0]) for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
        except (OSError, UnicodeError) as error:
            found[host] = getattr(error, "strerror", None) or str(error)


def reach(host: str, port: int, limit_s: float) -> str:
    """How it went with the listener of `listen` there: "ok", or why not. A pod may begin to listen a moment later."""
    end, why = time.monotonic() + limit_s, "late"
    while time.monotonic() < end:
        try:
            with socket.create_connection((host, port), timeout=max(0.1, end - time.monotonic())) as found:
                said = found.recv(len(MAGIC))
                return "ok" if said == MAGIC else "something else answers there"
        except socket.timeout:  # noqa: UP041 - its own name before Python 3.10
            why = "no answer"
        except OSError as error:
            why = error.strerror or str(error)
        time.sleep(0.2)
    return why


def listen(port: int) -> socket.socket | str:
    """A socket on all addresses; "busy" where another one has the port."""
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    for each in (family, socket.AF_INET):
        try:
            return _listening(each, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "busy"
            last = error
    return last.strerror or str(last)


def _listening(family: int, port: int) -> socket.socket:
    """OSError also where the node has no such family: `ipv6.disable=1`, which `has_ipv6` does not know."""
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(("", port))
        found.listen(1024)
    except OSError:
        found.close()
        raise
    found.setblocking(False)
    return found


def greet(listener: socket.socket) -> None:
    """Answer who waits there."""
    with contextlib.suppress(OSError):
        while True:
            found, _ = listener.accept()
            with contextlib.suppress(OSError):
                found.sendall(MAGIC)
            found.close()
