"""Messages between this machine and a supervisor in a pod; sending never blocks reading."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from typing import Any

from gpuctl.remote.supervisor import frames

RUN, START, FOLLOW, STOP, INSPECT, SWEEP = "run", "start", "follow", "stop", "inspect", "sweep"  # orders
ORDER, END, ALIVE = range(64, 67)  # sent to the pod
STARTED, OUT, ENDED, REFUSED, BEAT, ANSWER = range(80, 86)  # sent by the pod
MAGIC = b"gpuctl-run 1\n"
DETACHED = "detached-"  # prefix of the tokens of detached programs, which distinguishes them from attached ones
SILENT_S = 60.0  # a peer that is silent for so long is gone
BEAT_S = 10.0
BUFFER_BYTES = 1 << 20  # bytes of buffered output; beyond it the program blocks, as on any full pipe
PART = 1 << 16
FLUSH_S = 20.0


class Gone(Exception):
    """The peer closed the connection."""


class Writer:
    """Write messages to a descriptor without blocking."""

    def __init__(self, out: int = 1) -> None:
        self.out, self.last = out, time.monotonic()
        self.waiting, self.size = deque([MAGIC]), len(MAGIC)
        os.set_blocking(out, False)

    def send(self, kind: int, value: Any) -> None:
        """Queue a message with a JSON payload."""
        self._add(frames.pack(kind, value))

    def raw(self, kind: int, payload: bytes) -> None:
        """Queue a message with a bytes payload."""
        self._add(frames.raw(kind, payload))

    def heartbeat(self) -> None:
        """Send a heartbeat if nothing else was sent for a while."""
        if time.monotonic() - self.last > BEAT_S:
            self.raw(BEAT, b"")

    @property
    def has_room(self) -> bool:
        return self.size < BUFFER_BYTES

    def flush(self) -> bool:
        """Write as much as possible; return whether anything was written. `Gone` if the peer closed the connection."""
        moved = False
        while self.waiting:
            try:
                sent = os.write(self.out, self.waiting[0])
            except BlockingIOError:
                break
            except OSError:
                raise Gone from None
            moved, rest = True, self.waiting.popleft()[sent:]
            self.size -= sent
            if rest:
                self.waiting.appendleft(rest)
        return moved

    def discard(self) -> None:
        """Drop all queued messages: the connection is lost."""
        self.waiting.clear()
        self.size = 0

    def finish(self) -> None:
        """Write all queued messages; give up if the peer reads nothing for too long."""
        last = time.monotonic()
        with contextlib.suppress(Gone):
            while self.waiting and time.monotonic() - last < FLUSH_S:
                last = time.monotonic() if self.flush() else last
                if self.waiting:
                    select.select([], [self.out], [], 0.2)

    def _add(self, message: bytes) -> None:
        self.waiting.append(message)
        self.size += len(message)
        self.last = time.monotonic()


class Reader:
    """Read messages from a descriptor; `heard_at`: time of the last one."""

    def __init__(self, source: int = 0) -> None:
        self.source, self.heard_at = source, time.monotonic()
        self.reader = frames.Reader(self._more)

    def order(self) -> Any:
        """Return the first message, the order. EOFError if there is none."""
        kind, payload = self.reader.next()
        if kind != ORDER:
            raise EOFError
        return frames.unpack(payload)

    def should_end(self) -> bool:
        """Return whether to stop: on request, when the connection closed, or after too long a silence. Never blocks.

        Messages after the order have no payload, so none stays split for long.
        """
        try:
            while True:
                kind, _ = self.reader.next()
                if kind == END:
                    return True
        except BlockingIOError:
            return time.monotonic() - self.heard_at > SILENT_S
        except EOFError:
            return True

    def nonblocking(self) -> Reader:
        """Never block from now on."""
        os.set_blocking(self.source, False)
        return self

    def _more(self) -> bytes:
        part = os.read(self.source, PART)
        self.heard_at = time.monotonic()
        return part
