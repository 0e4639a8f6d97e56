"""A way to the API that can be cut: a forwarder of TCP connections, so that a real connection breaks for real."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType

from tests.rig.kube.plane import Plane


class Cut:
    """Within its block `kubeconfig` leads to the cluster through us. After `after` bytes upwards connections end."""

    def __init__(self, cluster: Plane, folder: Path, after: int = 0) -> None:
        self.cluster, self.left, self.cuts = cluster, after, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.kubeconfig = folder / "cut.kubeconfig"
        server = f"https://{cluster.address}:{cluster.port}"
        text = cluster.kubeconfig.read_text()
        assert server in text
        self.kubeconfig.write_text(text.replace(server, f"https://127.0.0.1:{self.port}"))
        self.open: set[socket.socket] = set()

    def __enter__(self) -> Cut:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.listener.close()
        self.now()

    def now(self) -> None:
        """Break all connections that are open."""
        for each in list(self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection((self.cluster.address, self.cluster.port))
                self.open |= {client, server}
                threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, upwards: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 15):
                sink.sendall(data)
                if upwards and self.left:
                    self.left = max(0, self.left - len(data))
                    if not self.left:
                        self.cuts += 1
                        self.now()
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
