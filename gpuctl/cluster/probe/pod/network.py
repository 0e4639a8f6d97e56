"""Names in DNS and a port of another pod, as seen from this pod."""

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
    """Resolve names: a list of addresses, or the error as text ("late" after the limit)."""
    addresses: dict[str, Any] = {}
    waiting: queue.Queue[str] = queue.Queue()
    for host in hosts:
        waiting.put(host)
    for _ in range(min(AT_ONCE, len(hosts))):
        # Resolvers take no time limit: threads that are late are abandoned.
        threading.Thread(target=_resolve, args=(waiting, addresses), daemon=True).start()
    end = time.monotonic() + limit_s
    while len(addresses) < len(hosts) and time.monotonic() < end:
        time.sleep(0.02)
    return {host: addresses.get(host, "late") for host in hosts}


def _resolve(waiting: queue.Queue[str], addresses: dict[str, Any]) -> None:
    while True:
        try:
            host = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            addresses[host] = sorted(
                {str(row[4][0]) for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
            )
        except (OSError, UnicodeError) as error:
            addresses[host] = getattr(error, "strerror", None) or str(error)


def reach(host: str, port: int, limit_s: float) -> str:
    """Connect to the listener of `listen` on another pod; "ok", or the reason. It may start a moment later."""
    end, why = time.monotonic() + limit_s, "late"
    while time.monotonic() < end:
        try:
            with socket.create_connection((host, port), timeout=max(0.1, end - time.monotonic())) as connection:
                greeting = connection.recv(len(MAGIC))
                return "ok" if greeting == MAGIC else "something else answers there"
        except socket.timeout:  # noqa: UP041 - its own name before Python 3.10
            why = "no answer"
        except OSError as error:
            why = error.strerror or str(error)
        time.sleep(0.2)
    return why


def listen(port: int) -> socket.socket | str:
    """Open a socket on all addresses; "busy" if another program uses the port."""
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    for address_family in (family, socket.AF_INET):
        try:
            return _listening(address_family, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "busy"
            last = error
    return last.strerror or str(last)


def _listening(family: int, port: int) -> socket.socket:
    """Open the listener. OSError also if the node has no IPv6 (`ipv6.disable=1`, which `has_ipv6` does not show)."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    listener.settimeout(0.0)
    return listener


def greet(listener: socket.socket) -> None:
    """Answer waiting connections."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with contextlib.suppress(OSError):
                connection.sendall(MAGIC)
            connection.close()
