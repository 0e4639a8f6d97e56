"""Run programs in containers through the API's exec, with concurrent input and output and a reliable exit status.

The client library's stream is not used: it blocks forever on a server that accepts a connection and stays silent, does
not read while it sends (which deadlocks with a program that answers before it has read everything), and takes a broken
connection for a normal end. Here one thread sends and receives without blocking on either.

Half-close: protocol v5 can end a program's input, v4 (servers before 1.30) cannot. Programs for both must know where
their input ends.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from websocket import (
    ABNF,
    WebSocket,
    WebSocketBadStatusException,
    WebSocketException,
    WebSocketPayloadException,
)

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.core.sizes import size as size_text
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.tls import proxy, tls
from gpuctl.engine import typed_json, visit_failures

CONNECT_S = 15.0
CLOSE_S = 1  # for a peer that neither sends nor receives
SLICE_S = 0.2  # maximum delay until a stop is noticed
AT_ONCE = 64  # messages received in one turn
PART, KEPT_OF_ERR = 1 << 16, 1 << 14  # bytes of input per message; bytes kept of the end of standard error
KEPT_OF_STATUS = 1 << 16
MOST_OF_A_MESSAGE = 2**24  # bytes; kubelets send at most 32 KiB at a time
PRINTS_ENDLESSLY = "does something in the image print endlessly?"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
NO_PROGRAM = ("executable file not found", "no such file or directory", "command not found", "permission denied")
# A peer that disappears silently is noticed within a minute, even if nothing is sent.
KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4), ("TCP_NODELAY", 1))
    if hasattr(socket, name)
]


class NotStarted(GpuctlError):
    """The container does not have the program, or may not run it."""


class BrokenOff(GpuctlError):
    """`Stop` was set while the program ran."""


@dataclass(frozen=True)
class Command:
    """A program and its arguments, and the container to run it in (default: the pod's first).

    `silent_s`: maximum seconds without input taken or output given.
    """

    argv: Sequence[str]
    container: str = ""
    silent_s: float = 60
    stop: Stop = field(default_factory=Stop)


@dataclass(frozen=True)
class Done:
    """The exit of a program: its exit code and the end of its standard error."""

    code: int
    err: str


def run(
    cluster: Cluster,
    pod: str,
    command: Command,
    stdin: Iterable[bytes] = (),
    out: Callable[[bytes], object] = lambda _: None,
) -> Done:
    """Run a program to its end; `out` receives its output as it arrives.

    `Unreachable` if the connection broke: the program's end is unknown. `NotStarted` if it never ran.
    """
    with contextlib.closing(start(cluster, pod, command)) as program:
        with contextlib.suppress(EOFError):  # it ended before it read all input
            for part in stdin:
                program.send(part)
            program.end_input()
        while part := program.read():
            out(part)
        return program.done()


def read(cluster: Cluster, pod: str, command: Command, stdin: Iterable[bytes] = ()) -> tuple[Done, bytes]:
    """Run a short program to its end and return its output; see `run`. `GpuctlError` if it prints too much."""
    output = bytearray()

    def collect(part: bytes) -> None:
        output.extend(part)
        if len(output) > visit_failures.MOST_OUTPUT:
            raise GpuctlError(_doing(pod, command), visit_failures.TOO_MUCH_OUTPUT, PRINTS_ENDLESSLY)

    done = run(cluster, pod, command, stdin, collect)
    return done, bytes(output)


def _doing(pod: str, command: Command) -> str:
    return f"run {command.argv[0]} in the pod {pod}"


def start(cluster: Cluster, pod: str, command: Command) -> Program:
    """Start a program in a container."""
    doing = _doing(pod, command)
    path = f"{cluster.path_of(cluster.kind('v1', 'Pod'), pod)}/exec"
    query = [("command", word) for word in command.argv]
    query += [("container", command.container)] if command.container else []
    query += [("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    return Program(connect_websocket(cluster, path, query, doing), doing, command)


def connect_websocket(
    cluster: Cluster, path: str, query: list[tuple[str, str]], doing: str, protocols: Sequence[str] = (V5, V4)
) -> WebSocket:
    """Open a stream of a pod; `Unreachable` if nothing answers, else the error that the cluster gives."""
    url, headers = cluster.client.address(path, query), cluster.client.login_headers()
    websocket = WebSocket(sslopt=tls(cluster.client.configuration), sockopt=KEEPALIVE)
    names = {name.lower(): f"{name}: {value}" for name, value in headers.items()}
    kept = [line for name, line in names.items() if name not in ("accept", "content-type")]
    options = {
        "header": kept,
        "subprotocols": list(protocols),
        "timeout": CONNECT_S,
        **proxy(cluster.client.configuration),
    }
    try:
        websocket.connect("ws" + url.removeprefix("http"), **options)  # type: ignore[no-untyped-call]
    except WebSocketBadStatusException as error:
        body = (error.resp_body or b"").decode(errors="replace")
        raise _refused(cluster.refusal(doing, error.status_code, body)) from error
    except (WebSocketException, OSError, ValueError) as error:
        raise Unreachable(doing, f"{cluster.server} does not answer: {error}") from error
    return websocket


def _refused(error: GpuctlError) -> GpuctlError:
    """The error for a server that refused the connection."""
    # Over a WebSocket both are a GET; servers from 1.35 on ask for create as well (kubernetes/kubernetes#134577).
    for stream in ("pods/exec", "pods/portforward"):
        if isinstance(error, Forbidden) and stream in error.wrong:
            return Forbidden(error.doing, error.wrong, f"ask for a role that allows get and create of {stream}")
    return error


class _Status(TypedDict, total=False):
    """The part of a Status object that reports how a program ended."""

    status: str | None
    message: str | None
    details: dict[str, Any] | None


def _exit_code(status: _Status) -> int | None:
    causes = (status.get("details") or {}).get("causes")
    known = [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    texts = (str(cause.get("message")) for cause in known if cause.get("reason") == "ExitCode")
    return next((int(text) for text in texts if re.fullmatch(r"\d{1,3}", text)), None)


def _bound_messages(websocket: Any) -> None:
    """Break the connection at a message of more than MOST_OF_A_MESSAGE bytes: the library would collect all of it."""
    receive = websocket.frame_buffer.recv_strict

    def receive_bounded(size: int) -> bytes:
        if size > MOST_OF_A_MESSAGE:
            raise WebSocketPayloadException(f"a message has {size} bytes, more than {size_text(MOST_OF_A_MESSAGE)}")
        received: bytes = receive(size)
        return received

    websocket.frame_buffer.recv_strict = receive_bounded


class Program:
    """A program that runs. One thread at a time may use it."""

    def __init__(self, websocket: Any, doing: str, command: Command) -> None:
        self.doing, self.stop, self.silent_s = doing, command.stop, command.silent_s
        self.protocol = str(websocket.getsubprotocol() or V4)
        self.err = b""
        self._websocket, self._socket = websocket, websocket.sock
        _bound_messages(websocket)
        self._socket.settimeout(0.0)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._out: deque[bytes] = deque()
        self._unread_bytes = 0
        self._to_send: deque[memoryview] = deque()
        self._channel = -1  # of the message that is being read
        self._status = b""
        self._has_ended = False
        self._broke = ""  # why, if the cause was not the network

    # ---- input and output ----------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send input, and wait until it is written to the connection; EOFError if the program has ended."""
        for at in range(0, len(data), PART):
            self._queue(bytes([STDIN]) + data[at : at + PART])
        last = time.monotonic()
        while self._to_send:
            if self._has_ended:
                raise EOFError(self.doing)
            last = time.monotonic() if self._turn(SLICE_S) else last
            self._check(last, "takes no more input")
            if self._unread_bytes > visit_failures.MOST_OUTPUT:
                raise GpuctlError(self.doing, visit_failures.TOO_MUCH_OUTPUT, PRINTS_ENDLESSLY)

    def read(self) -> bytes:
        """Return the next output; empty once the program has ended and everything was read."""
        last = time.monotonic()
        self._check(last, "has not answered")  # needed here, too: a program that prints endlessly always has output
        while not self._out and not self._has_ended:
            self._turn(SLICE_S)
            self._check(last, "has not answered")
        part = self._out.popleft() if self._out else b""
        self._unread_bytes -= len(part)
        return part

    def waiting(self, wait_s: float = 0) -> bool:
        """Return whether output is available, or the program has ended."""
        if not self._out and not self._has_ended:
            self._turn(wait_s)
        return bool(self._out) or self._has_ended

    def ping(self) -> None:
        """Send a ping, so that proxies keep the idle connection."""
        self._queue(b"", ABNF.OPCODE_PING)
        self._turn(0)

    def end_input(self) -> bool:
        """Close the program's input; False if the server cannot (protocol v4)."""
        if self.protocol != V5:
            return False
        self._queue(bytes([CLOSE, STDIN]))
        self._turn(0)
        return True

    def done(self) -> Done:
        """Return the exit of the program, after `read` returned nothing; `Unreachable` if no status arrived."""
        try:
            status = typed_json.read(typed_json.parse(self._status), _Status, extra=True)
        except typed_json.Misfit as error:
            raise Unreachable(self.doing, f"how it ended makes no sense: {error}") from None
        except ValueError:
            raise Unreachable(self.doing, f"the connection broke before it ended{self._broke}") from None
        err = self.err.decode(errors="replace").strip()
        if status.get("status") == "Success":
            return Done(0, err)
        code = _exit_code(status)
        if code is not None:
            return Done(code, err)
        message = str(status.get("message") or "no reason given")
        if any(text in message.lower() for text in NO_PROGRAM):
            raise NotStarted(self.doing, message)
        raise GpuctlError(self.doing, message)

    def close(self) -> None:
        """Close the connection. The program reads the end of its input."""
        with contextlib.suppress(OSError, WebSocketException, ValueError):
            self._socket.settimeout(CLOSE_S)  # for the frame that `close` sends; its `timeout` only covers the answer
            self._websocket.close(timeout=CLOSE_S)

    # ---- the connection -------------------------------------------------------------------------------------------

    def _check(self, since: float, wrong: str) -> None:
        if self.stop.is_set():
            raise BrokenOff(self.doing, "broken off")
        if time.monotonic() - since > self.silent_s:
            raise Unreachable(self.doing, f"it {wrong} for {self.silent_s:g} s")

    def _queue(self, payload: bytes, opcode: int = ABNF.OPCODE_BINARY) -> None:
        self._to_send.append(memoryview(ABNF.create_frame(payload, opcode).format()))

    def _turn(self, wait_s: float) -> bool:
        """Send and receive, waiting at most `wait_s` if neither is possible; return whether anything moved."""
        moved = self._move()
        if not moved and wait_s and not self._has_ended:
            events = select.POLLIN | (select.POLLOUT if self._to_send else 0)
            self._poll.modify(self._socket, events)
            self._poll.poll(wait_s * 1000)
            moved = self._move()
        return moved

    def _move(self) -> bool:
        """Receive and transmit, always both: a program that prints endlessly must not block input."""
        received = self._receive()
        return self._transmit() or received

    def _transmit(self) -> bool:
        """Send a part of the queue; return whether anything was sent."""
        if self._has_ended or not self._to_send:
            return False
        try:
            sent = self._socket.send(self._to_send[0])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return False
        except OSError:
            while self._receive() and not self._has_ended:  # output before the connection broke
                pass
            self._has_ended = True
            return True
        rest = self._to_send.popleft()[sent:]
        if rest:
            self._to_send.appendleft(rest)
        return True

    def _receive(self) -> bool:
        """Read available messages; return whether there were any. A broken connection is an end without status.

        At most AT_ONCE messages: a program may print endlessly.
        """
        moved = False
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            for _ in range(AT_ONCE):
                if self._has_ended:
                    break
                try:
                    self._take(self._websocket.recv_frame())
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                    raise
                except (OSError, WebSocketException) as error:
                    self._has_ended = True
                    self._broke = f": {error}" if isinstance(error, WebSocketPayloadException) else ""
                moved = True
        return moved

    def _take(self, frame: Any) -> None:
        """Process a message or a fragment; only the first fragment carries the channel number."""
        if frame.opcode == ABNF.OPCODE_PING:
            self._queue(bytes(frame.data), ABNF.OPCODE_PONG)
        elif frame.opcode == ABNF.OPCODE_CLOSE:
            self._has_ended = True
        elif frame.opcode in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT, ABNF.OPCODE_CONT):
            data = bytes(frame.data)
            if frame.opcode != ABNF.OPCODE_CONT and data:
                self._channel, data = data[0], data[1:]
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        if self._channel == STDOUT and data:
            self._out.append(data)
            self._unread_bytes += len(data)
        elif self._channel == STDERR:
            self.err = (self.err + data)[-KEPT_OF_ERR:]
        elif self._channel == STATUS:
            self._status = (self._status + data)[:KEPT_OF_STATUS]
