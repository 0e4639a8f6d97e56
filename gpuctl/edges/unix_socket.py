"""Calls over a Unix socket: one JSON line each way. The kernel proves who calls (SO_PEERCRED)."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.engine import typed_json

LONGEST = 64 * 1024  # bytes of a call; answers may be longer
CALL_S = 30  # for a client to send its call, and to take the answer
MOST_CLIENTS = 64  # at the same time; the others wait in the queue of the socket
Answer = Callable[["Peer", Any], Any]


@dataclass(frozen=True)
class Peer:
    """Credentials of the process at the other end when it connected."""

    uid: int
    gid: int
    pid: int


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
        wrong = getattr(error, "strerror", None) or "it gave no answer"
        hint = "start it with `gpuctl reservations serve`, or name its socket with --socket"
        raise Unreachable(f"ask the reservation service at {path}", wrong, hint) from error


def _accept(listener: socket.socket, answer: Answer) -> None:
    free = threading.BoundedSemaphore(MOST_CLIENTS)
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # shut down
        free.acquire()
        threading.Thread(target=_serve_one, args=(client, answer, free), daemon=True).start()


def _serve_one(client: socket.socket, answer: Answer, free: threading.BoundedSemaphore) -> None:
    try:
        with client, contextlib.suppress(OSError):
            client.settimeout(CALL_S)
            pid, uid, gid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            with client.makefile("rb") as stream:
                line = stream.readline(LONGEST + 1)
            if line:
                client.sendall(json.dumps(answer(Peer(uid, gid, pid), _parsed(line))).encode() + b"\n")
    finally:
        free.release()


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
