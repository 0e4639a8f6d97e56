"""Calls over a Unix socket: one JSON line each way. The kernel proves who calls (SO_PEERCRED).

After some answers the connection stays, and carries bytes both ways (`Stream`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.descriptors import write_all
from gpuctl.engine import typed_json

LONGEST = 64 * 1024  # bytes of a call; answers may be longer
CALL_S = 30  # for a client to send its call, and to take the answer
MOST_CLIENTS = 64  # at the same time; the others wait in the queue of the socket
PART = 1 << 16  # bytes
MOST_STREAMS = 256  # at the same time; the others are refused
Answer = Callable[["Peer", Any], Any]


@dataclass(frozen=True)
class Peer:
    """Credentials of the process at the other end when it connected."""

    uid: int
    gid: int
    pid: int


@dataclass(frozen=True)
class Stream:
    """An answer after which the connection stays: `pump` gets its file descriptor, and returns when it is to end."""

    head: Any
    pump: Callable[[int], object]


@contextmanager
def serving(path: Path, answer: Answer) -> Iterator[None]:
    """Answer calls while the context lasts. Every local user may connect."""
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            if path.is_socket() and not _answers(path):
                path.unlink()  # left by a service that was killed
            listener.bind(str(path))
            path.chmod(0o666)
        except OSError as error:
            hint = "another service may run with it; choose another one with --socket"
            raise GpuctlError(f"listen on {path}", error.strerror or str(error), hint) from error
        listener.listen(1024)
        thread = threading.Thread(target=_accept, args=(listener, answer), daemon=True)
        thread.start()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(CALL_S)


def call(path: Path, request: Any) -> Any:
    """The answer to one call. `Unreachable` if no service answers."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(CALL_S)
            client.connect(str(path))
            client.sendall(json.dumps(request).encode() + b"\n")
            client.shutdown(socket.SHUT_WR)
            with client.makefile("rb") as stream:
                return typed_json.parse(stream.readline())
    except (OSError, ValueError) as error:
        raise _no_service(path, error) from error


def connect(path: Path, request: Any, source: int, sink: int) -> Any:
    """Send a call whose answer is a `Stream`, and copy from and to file descriptors until either side closes.

    The result is the answer, at once if it has an "error". `Unreachable` if no service answers.
    """
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.settimeout(CALL_S)
            client.connect(str(path))
            client.sendall(json.dumps(request).encode() + b"\n")
            answer = typed_json.parse(_line(client))
        except (OSError, ValueError) as error:
            raise _no_service(path, error) from error
        if "error" not in answer:
            client.settimeout(None)
            _copy(client, source, sink)
        return answer


def _copy(service: socket.socket, source: int, sink: int) -> None:
    """Copy both ways until either side closes. Each way has a thread: the service reads only while we read, too."""
    ended = threading.Event()

    def copy(from_: int, to: int) -> None:
        try:
            with contextlib.suppress(OSError):  # the other side is gone
                while data := os.read(from_, PART):
                    write_all(to, data)
        finally:
            ended.set()

    for ends in ((source, service.fileno()), (service.fileno(), sink)):
        threading.Thread(target=copy, args=ends, daemon=True).start()
    ended.wait()
    with contextlib.suppress(OSError):
        service.shutdown(socket.SHUT_RDWR)


def _line(client: socket.socket) -> bytes:
    """One line; what follows it is left in the socket."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) <= LONGEST:
        part = client.recv(1)
        if not part:
            break
        line += part
    return bytes(line)


def _no_service(path: Path, error: Exception) -> Unreachable:
    wrong = getattr(error, "strerror", None) or "it gave no answer"
    hint = "start it with `gpuctl reservations serve`, or name its socket with --socket"
    return Unreachable(f"ask the reservation service at {path}", wrong, hint)


def _accept(listener: socket.socket, answer: Answer) -> None:
    free, streams = threading.BoundedSemaphore(MOST_CLIENTS), threading.BoundedSemaphore(MOST_STREAMS)
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # shut down
        free.acquire()
        threading.Thread(target=_serve_one, args=(client, answer, free, streams), daemon=True).start()


def _serve_one(
    client: socket.socket, answer: Answer, free: threading.BoundedSemaphore, streams: threading.BoundedSemaphore
) -> None:
    with client, contextlib.suppress(OSError):
        try:
            client.settimeout(CALL_S)
            pid, uid, gid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            with client.makefile("rb") as lines:
                line = lines.readline(LONGEST + 1)
            if not line:
                return
            result = answer(Peer(uid, gid, pid), _parsed(line))
            if not isinstance(result, Stream):
                client.sendall(json.dumps(result).encode() + b"\n")
                return
        finally:
            free.release()  # a connection lasts for hours, and takes no place of a call
        _serve_stream(client, result, streams)


def _serve_stream(client: socket.socket, answer: Stream, streams: threading.BoundedSemaphore) -> None:
    if not streams.acquire(blocking=False):
        error = f"the service has {MOST_STREAMS} connections already"
        client.sendall(json.dumps({"error": error, "hint": "end some of them", "exit_code": 1}).encode() + b"\n")
        return
    try:
        client.sendall(json.dumps(answer.head).encode() + b"\n")
        client.settimeout(None)
        answer.pump(client.fileno())
    finally:
        streams.release()


def _parsed(line: bytes) -> Any:
    """The call; None if it is not one line of JSON."""
    if len(line) > LONGEST:
        return None
    try:
        return typed_json.parse(line)
    except ValueError:
        return None


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
