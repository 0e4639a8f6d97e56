"""One connection to a port of a pod, through the API's port forward, without a local port.

A port forward over a WebSocket has two channels for its one port, data and errors; the first message of a channel is
the port's number (kubelet, pkg/cri/streaming/portforward/websocket.go).
"""

from __future__ import annotations

import contextlib
import os
import select
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.descriptors import write_all
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import PART, V4, Command, Program, connect_websocket

DATA, ERROR = 0, 1
PORT_BYTES = 2
PING_S = 20.0  # proxies and load balancers end what is silent for a minute


class PortStream(Program):
    """A connection; its `read` and `send` are those of a program's output and input."""

    def __init__(self, websocket: Any, doing: str, silent_s: float) -> None:
        super().__init__(websocket, doing, Command([], silent_s=silent_s))
        self._unread_headers = {DATA: PORT_BYTES, ERROR: PORT_BYTES}

    def _keep(self, data: bytes) -> None:
        header = min(self._unread_headers.get(self._channel, 0), len(data))
        self._unread_headers[self._channel] = self._unread_headers.get(self._channel, 0) - header
        data = data[header:]
        if self._channel == DATA and data:
            self._out.append(data)
            self._unread_bytes += len(data)
        elif self._channel == ERROR:
            self.err += data[:PART]

    def check(self) -> None:
        """Raise the error that the node reports, such as a port on which nothing listens."""
        if text := self.err.decode(errors="replace").strip():
            hint = "is the pod's sshd up? `kubectl logs` shows its messages"
            raise GpuctlError(self.doing, text.splitlines()[-1], hint)

    def pump(self, source: int, sink: int) -> None:
        """Copy from a file descriptor and to another one, until either side closes."""
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(self._socket, select.POLLIN)
        while True:
            while self.waiting():
                part = self.read()
                if not part:
                    self.check()
                    return
                with contextlib.suppress(BrokenPipeError):
                    write_all(sink, part)
            ready = [descriptor for descriptor, _ in poll.poll(PING_S * 1000)]
            if not ready:
                self.ping()
            elif source in ready:
                data = os.read(source, PART)
                if not data:
                    return
                try:
                    self.send(data)
                except EOFError:
                    continue  # what arrived before the end is written first


def connect(cluster: Cluster, pod: str, port: int, silent_s: float = 60) -> PortStream:
    """Open a connection to a port of a pod; `Unreachable`, `Forbidden` or `NotFound` if there is none."""
    doing = f"reach port {port} of the pod {pod}"
    path = f"{cluster.path_of(cluster.kind('v1', 'Pod'), pod)}/portforward"
    return PortStream(connect_websocket(cluster, path, [("ports", str(port))], doing, (V4,)), doing, silent_s)


def first_bytes(cluster: Cluster, pod: str, port: int, silent_s: float) -> bytes:
    """The first bytes that a server sends by itself; empty if it closes without a word."""
    with contextlib.closing(connect(cluster, pod, port, silent_s)) as stream:
        part = stream.read()
        stream.check()
        return part
