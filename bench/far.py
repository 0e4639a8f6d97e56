"""A forwarder of TCP connections that puts a server further away, and counts the bytes that come from it."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from types import TracebackType

Parts = queue.SimpleQueue[tuple[float, bytes]]


class Far:
    """Within its block `port` of 127.0.0.1 leads to a server that is `delay_s` away, each way; `received`: bytes."""

    def __init__(self, address: str, port: int, delay_s: float) -> None:
        self.to, self.delay_s, self.received = (address, port), delay_s, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self.listener.getsockname()[1]

    def __enter__(self) -> Far:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        time.sleep(2 * self.delay_s)  # the connection itself takes a round trip, too
        server = socket.create_connection(self.to)
        threading.Thread(target=self._carry, args=(client, server), kwargs={"down": False}, daemon=True).start()
        self._carry(server, client, down=True)

    def _carry(self, source: socket.socket, sink: socket.socket, *, down: bool) -> None:
        parts: Parts = queue.SimpleQueue()
        threading.Thread(target=_deliver, args=(parts, sink), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.received += len(data) if down else 0
                parts.put((time.monotonic() + self.delay_s, data))
        parts.put((0, b""))


def _deliver(parts: Parts, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            due, data = parts.get()
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            time.sleep(max(0, due - time.monotonic()))
            sink.sendall(data)
