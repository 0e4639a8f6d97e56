"""Hears one pod of a training, through broken connections, until it has ended there or there is no way back."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.errors import Forbidden, NotLoggedIn
from gpuctl.remote.connection import Refused
from gpuctl.remote.detached import Follower, Run
from gpuctl.remote.model import There

PAUSE_S = 2.0  # until a pod that does not answer is tried again
SHUT_OUT_S = 30.0  # an API server that has just begun refuses what it allows a moment later
WAIT_S = 0.2
MOST_OF_A_LINE = 1 << 16  # bytes
AFTER_EACH = re.compile(rb"(?<=\n)|(?<=\r)(?!\n|\Z)")


@dataclass(frozen=True)
class News:
    """`kind`: line, note, ended (with its `run`), gone (the pod is), lost (it can be listened to no longer)."""

    pod: str
    kind: str
    words: str = ""
    run: Run | None = None


class Listener:
    """Hears a run in one pod. `gone`: why there is nothing to come back to; "" where it may only be out of reach."""

    def __init__(
        self, there: There, gone: Callable[[str], str], news: queue.Queue[News], enough: threading.Event
    ) -> None:
        self.there, self.gone, self.news, self.enough = there, gone, news, enough
        self.away = ""  # what was told of a pod that does not answer
        self.refused_s = 0.0

    def hear(self, name: str) -> None:
        """Until it has ended, or that is `enough`. Whatever breaks is told: nobody is to wait for it for ever."""
        try:
            self._hear(name)
        except Exception as error:  # noqa: BLE001 - in a thread, where nobody would see it
            self._put("lost", f"{self.there.pod}: {type(error).__name__}: {error}")

    def _hear(self, name: str) -> None:
        lines = Lines(lambda line: self._put("line", line))
        follower = Follower(self.there, name, lines.add, self._skipped, answers=self._answers)
        while not self.enough.is_set():
            try:
                run = follower.follow(self.enough)
            except GpuctlError as error:
                if not self._goes_on(error):
                    return
                self.enough.wait(PAUSE_S)
            else:
                lines.finish()
                if run:
                    self._put("ended", run=run)
                return

    def _goes_on(self, error: GpuctlError) -> bool:
        """Whether it is worth another try; what is to be told of it is."""
        if gone := self._why_gone(error):
            self._put("gone", gone)
            return False
        if not isinstance(error, (Forbidden, NotLoggedIn)):
            self.refused_s = 0.0
        elif not self.refused_s:
            self.refused_s = time.monotonic()
        elif time.monotonic() - self.refused_s > SHUT_OUT_S:
            self._put("lost", f"{self.there.pod}: {error.wrong}")
            return False
        if error.wrong != self.away:
            self._put("note", f"{error.wrong}; trying again")
        self.away = error.wrong
        return True

    def _why_gone(self, error: GpuctlError) -> str:
        try:
            found = self.gone(self.there.pod)
        except GpuctlError:
            return ""
        wrong = f"{error.wrong}: was the pod made anew, or its /tmp emptied?"
        return found or (wrong if isinstance(error, Refused) else "")

    def _answers(self) -> None:
        if self.away:
            self._put("note", "it answers again")
        self.away, self.refused_s = "", 0.0

    def _skipped(self, count: int) -> None:
        self._put("note", f"{count} bytes of output that was not kept any more are missing here")

    def _put(self, kind: str, words: str = "", run: Run | None = None) -> None:
        """A pod waits while nobody takes its lines."""
        while not self.enough.is_set():
            with contextlib.suppress(queue.Full):
                self.news.put(News(self.there.pod, kind, words, run), timeout=WAIT_S)
                return


class Lines:
    """Pieces of output as lines, without their ends; what is to be drawn over (a progress bar) keeps its \\r."""

    def __init__(self, line: Callable[[str], object]) -> None:
        self.line, self.rest = line, b""

    def add(self, data: bytes) -> None:
        *whole, self.rest = AFTER_EACH.split(self.rest + data)
        if len(self.rest) > MOST_OF_A_LINE:
            whole, self.rest = [*whole, self.rest], b""
        for each in whole:
            text = each.rstrip(b"\r\n") if each.endswith(b"\n") else each
            if text != b"\r":
                self.line(text.decode(errors="replace"))

    def finish(self) -> None:
        if self.rest:
            self.line(self.rest.decode(errors="replace"))
        self.rest = b""
