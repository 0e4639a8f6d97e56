"""Stand-in for an API server's exec: runs programs on this machine, speaking the server's WebSocket protocol.

No container is involved. It exists so that a transport into pods is tested without a cluster; real pods are in
tests/rig/kube/node.py.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit

from websocket import ABNF, WebSocket, WebSocketException

from gpuctl.edges.kube.api import Client
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.library import Configuration
from gpuctl.edges.kube.pod_exec import CLOSE, STATUS, STDERR, STDIN, STDOUT, V4, V5

ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
NAMESPACE = "team"
KINDS = {"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]}


class StandinExec(ThreadingHTTPServer):
    """Serves the pods of one namespace; requests for any other pod are dropped without an answer."""

    daemon_threads = True

    def __init__(self, pods: Sequence[dict[str, Any]], protocol: str = V5) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods, self.protocol = list(pods), protocol
        self.sessions: list[_Session] = []

    def cluster(self) -> Cluster:
        """A client of this server."""
        settings = Configuration()
        settings.host = f"http://127.0.0.1:{self.server_port}"
        return Cluster(Client(settings), NAMESPACE, patience_s=0)

    def cut(self) -> None:
        """Break all connections without a word."""
        for session in self.sessions:
            with contextlib.suppress(OSError):
                session.connection.shutdown(SHUT_RDWR)


@contextlib.contextmanager
def serve(pods: Sequence[dict[str, Any]], protocol: str = V5) -> Iterator[StandinExec]:
    """The server within this block; what it runs is ended with it."""
    with StandinExec(pods, protocol) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
            server.cut()
            for session in server.sessions:
                session.process.kill()
                session.process.wait()


class _Handler(BaseHTTPRequestHandler):
    server: StandinExec
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path.endswith("/exec"):
            self._exec(path.split("/")[-2], query["command"])
        elif path.endswith("/pods"):
            self._answer({"items": self.server.pods, "metadata": {"resourceVersion": "1"}})
        else:
            self._answer(KINDS)

    def _answer(self, value: object) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _exec(self, pod: str, argv: Sequence[str]) -> None:
        self.close_connection = True
        if pod not in {item["metadata"]["name"] for item in self.server.pods}:
            return
        key = self.headers["Sec-WebSocket-Key"] + ACCEPT
        accept = base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.send_header("Sec-WebSocket-Protocol", self.server.protocol)
        self.end_headers()
        session = _Session(self.connection, argv)
        self.server.sessions.append(session)
        session.run()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Print nothing."""


class _Session:
    """One program and its connection."""

    def __init__(self, connection: Any, argv: Sequence[str]) -> None:
        self.connection, self.websocket = connection, WebSocket()
        self.websocket.sock, self.websocket.connected = connection, True
        self.process = subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=-1, bufsize=0, start_new_session=True)
        self._lock = threading.Lock()

    def run(self) -> None:
        threading.Thread(target=self._feed, daemon=True).start()
        pumps = [
            threading.Thread(target=self._pump, args=pair, daemon=True)
            for pair in ((STDOUT, self.process.stdout), (STDERR, self.process.stderr))
        ]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        code = self.process.wait()
        self._send(STATUS, json.dumps(_status(code if code >= 0 else 128 - code)).encode())
        self._send_frame(b"\x03\xe8", ABNF.OPCODE_CLOSE)

    def _feed(self) -> None:
        """Pass input on; a lost connection ends the program's input and nothing else, as in a container."""
        stdin = self.process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError, WebSocketException), stdin:
            while True:
                opcode, frame = self.websocket.recv_data_frame(control_frame=True)
                data = bytes(frame.data) if frame else b""
                if opcode == ABNF.OPCODE_CLOSE or data == bytes([CLOSE, STDIN]):
                    return
                if opcode == ABNF.OPCODE_BINARY and data[:1] == bytes([STDIN]):
                    _write_all(stdin, data[1:])

    def _pump(self, channel: int, stream: IO[bytes]) -> None:
        with stream:
            while part := stream.read(1 << 16):
                self._send(channel, part)

    def _send(self, channel: int, data: bytes) -> None:
        self._send_frame(bytes([channel]) + data, ABNF.OPCODE_BINARY)

    def _send_frame(self, data: bytes, opcode: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            self.connection.sendall(ABNF(1, 0, 0, 0, opcode, 0, data).format())


def _write_all(stream: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def _status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


PROTOCOLS = (V4, V5)
