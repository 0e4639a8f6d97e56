"""A training in all of its pods: heard until it has ended, one pod has failed, or it can be heard no longer."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpuctl.cluster.train.follow import Listener, News
from gpuctl.core.errors import GpuctlError
from gpuctl.remote.detached import Run
from gpuctl.remote.model import There

LAST_LINES = 20
MOST_WAITING = 10_000  # lines that are not shown yet; beyond that pods wait
SETTLE_S = 3.0  # pods often fail together: which was the first is seen in their clocks
LEAVE_S = 2.0  # for those who listen
# How pdsh tells that a pod's part ended; it then waits for the others, for ever if they hang.
PDSH = re.compile(r"^pdsh@\S+: (\S+): ssh exited with exit code (\d+)$")

ENDED = "ended with exit code {}"
LOST_SSH = "ended with exit code 255, which is also ssh's word for a connection that broke"
LOST = "what kept it there was killed, or could not write: did memory or disk run out, or the container start anew?"


class Told(Protocol):
    """Hears what goes on, in one thread."""

    def printed(self, pod: str, line: str) -> None:
        """A line of a pod's output; one that is to be drawn over ends in \\r."""

    def note(self, pod: str, words: str) -> None:
        """Something about a pod: that it does not answer, or does again."""


@dataclass(frozen=True)
class Training:
    """One that was begun. `pods`: those it was begun in.

    `gone` asks the cluster whether a pod of it does not come back: why, or "" where it may.
    """

    name: str
    token: str
    pods: Sequence[There]
    gone: Callable[[str], str] = field(default=lambda _: "", compare=False)


@dataclass(frozen=True)
class Failure:
    """A pod that failed, how, and the last that it printed.

    `at`: when, by the pod's clock; 0 where none says. Such are causes: a pod that is gone makes the others fail.
    """

    pod: str
    words: str
    last: Sequence[str]
    at: float = 0.0


@dataclass
class Heard:
    """What is known by now. `lost`: why it can be listened to no longer, though it goes on."""

    ended: dict[str, Run] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    lost: str = ""

    @property
    def first(self) -> Failure | None:
        return min(self.failures, key=lambda each: each.at, default=None)


class Watch:
    """Listens in all of its pods at the same time."""

    def __init__(self, training: Training, told: Told) -> None:
        self.training, self.told = training, told
        self.enough = threading.Event()
        self.heard = Heard()
        self._news: queue.Queue[News] = queue.Queue(MOST_WAITING)
        self._ears = [Listener(each, training.gone, self._news, self.enough) for each in training.pods]
        self._over: set[str] = set()  # pods of which nothing more will be heard
        self._last = {each.pod: deque[str](maxlen=LAST_LINES) for each in training.pods}

    def until_ended(self, broken_off: Callable[[], bool]) -> Heard:
        """Until all pods have ended, one has failed, it can be heard no longer, or it is `broken_off`."""
        name = self.training.name
        threads = [threading.Thread(target=each.hear, args=(name,), daemon=True) for each in self._ears]
        for thread in threads:
            thread.start()
        settled = float("inf")
        try:
            while not (broken_off() or self._is_over() or time.monotonic() > settled):
                self._take()
                if self.heard.failures and settled == float("inf"):
                    settled = time.monotonic() + SETTLE_S
        finally:
            self.enough.set()
            end = time.monotonic() + LEAVE_S
            for thread in threads:  # one that waits for a server that does not answer is left behind
                thread.join(max(0.0, end - time.monotonic()))
        while not self._news.empty():
            self._take()
        self.heard.failures = [self._explained(each) for each in self.heard.failures]
        return self.heard

    def _explained(self, failure: Failure) -> Failure:
        """Where ssh lost a pod, whether that is gone."""
        why = ""
        if failure.words == LOST_SSH:
            with contextlib.suppress(GpuctlError):
                why = self.training.gone(failure.pod)
        return replace(failure, words=why) if why else failure

    def _is_over(self) -> bool:
        return bool(self.heard.lost) or len(self._over) == len(self.training.pods)

    def _take(self) -> None:
        try:
            news = self._news.get(timeout=0.2)
        except queue.Empty:
            return
        if news.kind in ("ended", "gone"):
            self._over.add(news.pod)
        if news.kind == "line":
            self._line(news.pod, news.words)
        elif news.kind == "ended" and news.run:
            self._ended(news.pod, news.run)
        elif news.kind == "gone":
            self._failed(news.pod, news.words)
        elif news.kind == "lost":
            self.heard.lost = news.words
        else:
            self.told.note(news.pod, news.words)

    def _line(self, pod: str, line: str) -> None:
        last = self._last[pod]
        if last and last[-1].endswith("\r"):
            last.pop()
        last.append(line)
        self.told.printed(pod, line)
        if found := PDSH.match(line.rstrip()):
            host = found[1].partition(".")[0]
            begin = f"{found[1]}: "
            theirs = [each[len(begin) :] for each in last if each.startswith(begin)]
            words = LOST_SSH if found[2] == "255" else ENDED.format(found[2])
            self.heard.failures.append(Failure(host, words, theirs))

    def _ended(self, pod: str, run: Run) -> None:
        self.heard.ended[pod] = run
        if run.ended and run.ended.unlogged:
            self.told.note(pod, f"{run.ended.unlogged} bytes of its output were not kept: is its disk full?")
        if run.ended is None:
            self._failed(pod, LOST)
        elif not run.ended.well:
            if run.ended.asked:  # connections that broke for that are no failures
                self.heard.failures = [each for each in self.heard.failures if each.words != LOST_SSH]
            self._failed(pod, run.ended.words, run.ended_at or 0.0)

    def _failed(self, pod: str, words: str, at: float = 0.0) -> None:
        self.heard.failures.append(Failure(pod, words, list(self._last[pod]), at))
