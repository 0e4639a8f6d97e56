"""Follow a training in one pod through broken connections, until it ends there or cannot be reached again."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import Forbidden, NotLoggedIn
from gpuctl.remote.connection import Refused
from gpuctl.remote.detached import Follower, Run
from gpuctl.remote.model import PodTarget

PAUSE_S = 2.0  # until a pod that does not answer is tried again
SHUT_OUT_S = 30.0  # an API server that has just started rejects requests that it allows a moment later
WAIT_S = 0.2
MOST_OF_A_LINE = 1 << 16  # bytes
LINE_ENDS = re.compile(rb"(?<=\n)|(?<=\r)(?!\n|\Z)")


@dataclass(frozen=True)
class News:
    """An event in one pod; `kind`: line, note, ended (with its `run`), gone (the pod is), lost (cannot be followed any
    more).
    """

    pod: str
    kind: str
    text: str = ""
    run: Run | None = None


class Listener:
    """Follows a run in one pod. `gone`: why the pod does not come back; "" if it is only unreachable."""

    def __init__(
        self, target: PodTarget, gone: Callable[[str], str], news: queue.Queue[News], enough: threading.Event
    ) -> None:
        self.target, self.gone, self.news, self.enough = target, gone, news, enough
        self.away = ""  # the last message about a pod that does not answer
        self.refused_s = 0.0

    def listen(self, name: str) -> None:
        """Follow until the run ends or `enough` is set. Every error is reported: nobody waits forever."""
        try:
            self._listen(name)
        except Exception as error:  # noqa: BLE001 - in a thread, where nobody would see it
            self._put("lost", f"{self.target.pod}: {type(error).__name__}: {error}")

    def _listen(self, name: str) -> None:
        lines = Lines(lambda line: self._put("line", line))
        follower = Follower(self.target, name, lines.add, self._skipped, on_alive=self._answers)
        while not self.enough.is_set():
            try:
                run = follower.follow(self.enough)
            except GpuctlError as error:
                if not self._should_retry(error):
                    return
                self.enough.wait(PAUSE_S)
            else:
                lines.finish()
                if run:
                    self._put("ended", run=run)
                return

    def _should_retry(self, error: GpuctlError) -> bool:
        """Return whether to try again, and report the error."""
        if gone := self._why_gone(error):
            self._put("gone", gone)
            return False
        if not isinstance(error, (Forbidden, NotLoggedIn)):
            self.refused_s = 0.0
        elif not self.refused_s:
            self.refused_s = time.monotonic()
        elif time.monotonic() - self.refused_s > SHUT_OUT_S:
            self._put("lost", f"{self.target.pod}: {error.wrong}")
            return False
        if error.wrong != self.away:
            self._put("note", f"{error.wrong}; trying again")
        self.away = error.wrong
        return True

    def _why_gone(self, error: GpuctlError) -> str:
        try:
            reason = self.gone(self.target.pod)
        except GpuctlError:
            return ""
        wrong = f"{error.wrong}: was the pod recreated, or its /tmp emptied?"
        return reason or (wrong if isinstance(error, Refused) else "")

    def _answers(self) -> None:
        if self.away:
            self._put("note", "it answers again")
        self.away, self.refused_s = "", 0.0

    def _skipped(self, count: int) -> None:
        self._put("note", f"{count} bytes of older output are missing here: the pod no longer has them")

    def _put(self, kind: str, text: str = "", run: Run | None = None) -> None:
        """Queue an event; the pod waits while the queue is full."""
        while not self.enough.is_set():
            with contextlib.suppress(queue.Full):
                self.news.put(News(self.target.pod, kind, text, run), timeout=WAIT_S)
                return


class Lines:
    """Split output into lines without their ends; a line to be drawn over (progress bar) keeps its \\r."""

    def __init__(self, line: Callable[[str], object]) -> None:
        self.line, self.rest = line, b""

    def add(self, data: bytes) -> None:
        *whole, self.rest = LINE_ENDS.split(self.rest + data)
        if len(self.rest) > MOST_OF_A_LINE:
            whole, self.rest = [*whole, self.rest], b""
        for chunk in whole:
            text = chunk.rstrip(b"\r\n") if chunk.endswith(b"\n") else chunk
            if text != b"\r":
                self.line(text.decode(errors="replace"))

    def finish(self) -> None:
        if self.rest:
            self.line(self.rest.decode(errors="replace"))
        self.rest = b""
