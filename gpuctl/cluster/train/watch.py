"""Follow a training in all of its pods until it ends, one pod fails, or it cannot be followed any more."""

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

from gpuctl.cluster.train import failure_output
from gpuctl.cluster.train.follow import Listener, News
from gpuctl.cluster.train.launch import GRACE_S
from gpuctl.core.errors import GpuctlError
from gpuctl.remote.detached import Run
from gpuctl.remote.model import PodTarget

KEPT_LINES = 400  # of each pod: torchrun prints up to a hundred after an exception
LAST_LINES = 20
MOST_WAITING = 10_000  # queued lines; beyond that pods wait
SETTLE_S = 3.0  # pods often fail together: their clocks tell which was first
CAUSE_S = 10.0  # where all have only lost a peer: torchrun before 2.0 looks for failed processes every 5 s
LEAVE_S = 2.0  # for listeners to finish
# pdsh reports that a pod's part ended, then waits for the others, forever if they hang.
PDSH = re.compile(r"^pdsh@\S+: (\S+): ssh exited with exit code (\d+)$")

FINISHED = "ended with exit code {}"
LOST_SSH = "ended with exit code 255, which ssh also returns for a broken connection"
LOST = "its supervisor was killed or could not write: out of memory, disk full, or the container restarted?"


class ProgressListener(Protocol):
    """Receives progress, in one thread."""

    def printed(self, pod: str, line: str) -> None:
        """A line of a pod's output; one to be drawn over ends in \\r."""

    def note(self, pod: str, text: str) -> None:
        """A message about a pod, such as a lost or restored connection."""


@dataclass(frozen=True)
class Training:
    """A started training. `pods`: those it was started in.

    `gone` asks the cluster why a pod does not come back; "" if it may. `grace_s`: from SIGTERM to SIGKILL.
    """

    name: str
    token: str
    pods: Sequence[PodTarget]
    gone: Callable[[str], str] = field(default=lambda _: "", compare=False)
    grace_s: float = GRACE_S


@dataclass(frozen=True)
class Failure:
    """A failed pod, the reason, its last output without torchrun's report, and the exception there ("" if none).

    `at`: time by the pod's clock, 0 if unknown. Unknown times sort first: a pod that is gone makes the others fail.
    `lost_peer`: it only lost another pod, and is no cause.
    """

    pod: str
    description: str
    last: Sequence[str]
    at: float = 0.0
    exception: str = ""
    lost_peer: bool = False


@dataclass
class TrainingState:
    """State of a training so far. `lost`: why it can no longer be followed, although it continues."""

    exits: dict[str, Run] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    lost: str = ""

    @property
    def first(self) -> Failure | None:
        return min(self.failures, key=lambda failure: (failure.lost_peer, failure.at), default=None)


class Watch:
    """Follows all pods of a training concurrently."""

    def __init__(self, training: Training, listener: ProgressListener) -> None:
        self.training, self.listener = training, listener
        self.enough = threading.Event()
        self.state = TrainingState()
        self._news: queue.Queue[News] = queue.Queue(MOST_WAITING)
        self._ears = [Listener(target, training.gone, self._news, self.enough) for target in training.pods]
        self._over: set[str] = set()  # pods from which nothing more will come
        self._last = {target.pod: deque[str](maxlen=KEPT_LINES) for target in training.pods}

    def until_finished(self, broken_off: Callable[[], bool]) -> TrainingState:
        """Return when all pods have ended, one has failed, the training is lost, or `broken_off` is true."""
        name = self.training.name
        threads = [threading.Thread(target=listener.listen, args=(name,), daemon=True) for listener in self._ears]
        for thread in threads:
            thread.start()
        failed_at = float("inf")
        try:
            while not (broken_off() or self._is_over() or time.monotonic() > failed_at + self._settle_s()):
                self._take()
                if self.state.failures and failed_at == float("inf"):
                    failed_at = time.monotonic()
        finally:
            self.enough.set()
            end = time.monotonic() + LEAVE_S
            for thread in threads:  # a listener that waits for a silent server is abandoned
                thread.join(max(0.0, end - time.monotonic()))
        while not self._news.empty():
            self._take()
        self.state.failures = [self._explained(failure) for failure in self.state.failures]
        return self.state

    def _explained(self, failure: Failure) -> Failure:
        """If ssh lost the pod: explain whether it is gone."""
        why = ""
        if failure.description == LOST_SSH:
            with contextlib.suppress(GpuctlError):
                why = self.training.gone(failure.pod)
        return replace(failure, description=why) if why else failure

    def _settle_s(self) -> float:
        """How long to wait for other failures after the first one: longer while none of them is a cause."""
        return CAUSE_S if all(failure.lost_peer for failure in self.state.failures) else SETTLE_S

    def _is_over(self) -> bool:
        return bool(self.state.lost) or len(self._over) == len(self.training.pods)

    def _take(self) -> None:
        try:
            news = self._news.get(timeout=0.2)
        except queue.Empty:
            return
        if news.kind in ("ended", "gone"):
            self._over.add(news.pod)
        if news.kind == "line":
            self._line(news.pod, news.text)
        elif news.kind == "ended" and news.run:
            self._exited(news.pod, news.run)
        elif news.kind == "gone":
            self._failed(news.pod, news.text)
        elif news.kind == "lost":
            self.state.lost = news.text
        else:
            self.listener.note(news.pod, news.text)

    def _line(self, pod: str, line: str) -> None:
        last = self._last[pod]
        if last and last[-1].endswith("\r"):
            last.pop()
        last.append(line)
        self.listener.printed(pod, line)
        if match := PDSH.match(line.rstrip()):
            host = match[1].partition(".")[0]
            begin = f"{match[1]}: "
            theirs = [printed[len(begin) :] for printed in last if printed.startswith(begin)]
            description = LOST_SSH if match[2] == "255" else FINISHED.format(match[2])
            self.state.failures.append(_ended(host, description, theirs))

    def _exited(self, pod: str, run: Run) -> None:
        self.state.exits[pod] = run
        if run.exit and run.exit.unlogged:
            self.listener.note(pod, f"{run.exit.unlogged} bytes of its output were not stored: is its disk full?")
        if run.exit is None:
            self._failed(pod, LOST)
        elif not run.exit.succeeded:
            if run.exit.requested:  # connections that broke for that are no failures
                self.state.failures = [failure for failure in self.state.failures if failure.description != LOST_SSH]
            ended = _ended(pod, run.exit.description, list(self._last[pod]), run.finished_at or 0.0)
            self.state.failures.append(ended)

    def _failed(self, pod: str, description: str) -> None:
        self.state.failures.append(Failure(pod, description, list(self._last[pod])[-LAST_LINES:]))


def _ended(pod: str, description: str, lines: Sequence[str], at: float = 0.0) -> Failure:
    """Return the failure of a training that ended in a pod by itself."""
    last = failure_output.before_epilogue(lines)[-LAST_LINES:]
    exception, lost_peer = failure_output.exception(lines), failure_output.has_lost_a_peer(lines)
    return Failure(pod, description, last, at, exception, lost_peer)
