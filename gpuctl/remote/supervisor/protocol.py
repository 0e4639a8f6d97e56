"""What is said between here and a pod about programs that run there; no answer ever keeps us from listening."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from typing import Any

from gpuctl.remote.supervisor import frames

RUN, KEEP, FOLLOW, STOP, LOOK, SWEEP = "run", "keep", "follow", "stop", "look", "sweep"  # what is asked
ORDER, END, ALIVE = range(64, 67)  # from here
STARTED, OUT, ENDED, REFUSED, BEAT, ANSWER = range(80, 86)  # from there
MAGIC = b"gpuctl-run 1\n"
KEPT = "kept-"  # begins the token of what goes on without us: so it is told from what somebody listens to
SILENT_S = 60.0  # who says nothing for so long is gone
BEAT_S = 10.0
ROOM = 1 << 20  # bytes of output that wait; a program that prints faster than is read waits, as at any pipe
PART = 1 << 16
LAST_WORDS_S = 20.0


class Gone(Exception):
    """Nobody is there any more whom it is said to."""


class Voice:
    """Says messages on a descriptor without ever waiting for who reads them."""

    def __init__(self, out: int = 1) -> None:
        self.out, self.last = out, time.monotonic()
        self.waiting, self.size = deque([MAGIC]), len(MAGIC)
        os.set_blocking(out, False)

    def say(self, kind: int, value: Any) -> None:
        """A message of plain data."""
        self._add(frames.pack(kind, value))

    def raw(self, kind: int, payload: bytes) -> None:
        """A message of bytes."""
        self._add(frames.raw(kind, payload))

    def beat(self) -> None:
        """That we are at work, where nothing else was said for a while."""
        if time.monotonic() - self.last > BEAT_S:
            self.raw(BEAT, b"")

    @property
    def has_room(self) -> bool:
        return self.size < ROOM

    def pass_on(self) -> bool:
        """Say what can be said now, and whether that was anything; `Gone` where nobody listens."""
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

    def hush(self) -> None:
        """Nobody listens: nothing waits any more."""
        self.waiting.clear()
        self.size = 0

    def finish(self) -> None:
        """Say all of it; given up where nobody takes it for long."""
        last = time.monotonic()
        with contextlib.suppress(Gone):
            while self.waiting and time.monotonic() - last < LAST_WORDS_S:
                last = time.monotonic() if self.pass_on() else last
                if self.waiting:
                    select.select([], [self.out], [], 0.2)

    def _add(self, message: bytes) -> None:
        self.waiting.append(message)
        self.size += len(message)
        self.last = time.monotonic()


class Ear:
    """Hears messages on a descriptor; `heard` is when it last did."""

    def __init__(self, source: int = 0) -> None:
        self.source, self.heard = source, time.monotonic()
        self.reader = frames.Reader(self._more)

    def order(self) -> Any:
        """The first message: what is asked. EOFError where none comes."""
        kind, payload = self.reader.next()
        if kind != ORDER:
            raise EOFError
        return frames.unpack(payload)

    def told_to_end(self) -> bool:
        """Whether the end was heard: the word for it, the connection's, or nothing for too long. Never waits.

        What follows an order has no payload, so that no message is ever cut in two for long.
        """
        try:
            while True:
                kind, _ = self.reader.next()
                if kind == END:
                    return True
        except BlockingIOError:
            return time.monotonic() - self.heard > SILENT_S
        except EOFError:
            return True

    def quietly(self) -> Ear:
        """From now on nothing is waited for."""
        os.set_blocking(self.source, False)
        return self

    def _more(self) -> bytes:
        part = os.read(self.source, PART)
        self.heard = time.monotonic()
        return part
