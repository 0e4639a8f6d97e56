"""One command in all pods at the same time; what each prints is told line by line, and how each ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from gpuctl.cluster import pod_selection
from gpuctl.cluster.environment import CONTAINER
from gpuctl.cluster.shell import programs
from gpuctl.cluster.shell.flow import left_by
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.findings import worst_code
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.edges.kube.pod_exec import BrokenOff, Command

MOST = 64  # pods at the same time
LONGEST = 1 << 16  # bytes of a line; what has no end is told in pieces
FAILED, NOT_RUN = 1, 3
LOOK_S = 0.2
NEVER = float("inf")  # a command may say nothing for as long as it likes

Print = Callable[[str, str], None]  # pod, line


@dataclass(frozen=True)
class Ended:
    """How it ended in one pod; `code` None: it did not run to its end there, and `wrong` says why."""

    pod: str
    code: int | None
    wrong: str = ""


def run(
    cluster: Cluster, found: Sequence[Object], words: Sequence[str], say: Print, broken_off: Callable[[], bool]
) -> list[Ended]:
    """Run it in each; once it is to be `broken_off` it is ended in all of them. In the order of the pods.

    So it is where `say` cannot: nobody reads it any more (`| head`). Its error is raised when all have ended.
    """
    marked, stop = programs.mark(), Stop()
    teller = Teller(say, stop)
    with ThreadPoolExecutor(min(MOST, len(found))) as pool:
        jobs = [pool.submit(_one, Place(cluster, pod, stop), marked, words, teller.tell) for pod in found]
        while wait(jobs, LOOK_S).not_done:
            if broken_off():
                stop.set()
        ended = [job.result() for job in jobs]
    if teller.wrong is not None and not broken_off():
        raise teller.wrong
    return ended


class Teller:
    """Tells one line at a time; `wrong`: why none can be told any more, by which everything is broken off."""

    def __init__(self, say: Print, stop: Stop) -> None:
        self._say, self._stop, self._lock = say, stop, threading.Lock()
        self.wrong: OSError | None = None

    def tell(self, pod: str, line: str) -> None:
        with self._lock:
            if self.wrong is not None:
                return
            try:
                self._say(pod, line)
            except OSError as error:
                self.wrong = error
                self._stop.set()


@dataclass(frozen=True)
class Place:
    """Where it runs, and what ends it there."""

    cluster: Cluster
    pod: Object
    stop: Stop


def _one(place: Place, marked: str, words: Sequence[str], say: Print) -> Ended:
    cluster, pod, stop = place.cluster, place.pod, place.stop
    name = pod_selection.name_of(pod)
    if why := pod_selection.why_not(pod):
        return Ended(name, None, why)
    if stop.is_set():
        return Ended(name, None, "broken off before it began")
    lines = Lines(lambda line: say(name, line))
    try:
        command = Command(programs.enter(marked, words, together=True), CONTAINER, NEVER, stop)
        return Ended(name, pod_exec.run(cluster, name, command, out=lines.add).code)
    except GpuctlError as error:
        return Ended(name, None, _after(cluster, name, marked, error))
    finally:
        lines.end()


def _after(cluster: Cluster, pod: str, marked: str, error: GpuctlError) -> str:
    """Why it was not heard to its end, and what that left in the pod."""
    if not isinstance(error, BrokenOff | Unreachable):  # it never began
        return error.wrong
    why = "broken off" if isinstance(error, BrokenOff) else error.wrong
    left = left_by(cluster, pod, marked)
    if left is None:
        return f"{why}; whether it goes on there cannot be said"
    return f"{why}; {left.processes} of its processes could not be ended" if left.processes else why


def code(found: Sequence[Ended]) -> int:
    """0 where it ended with 0 in every pod, 1 where it failed in one, 3 where it did not run to its end in one."""
    return worst_code(NOT_RUN if each.code is None else FAILED if each.code else 0 for each in found)


class Lines:
    """Cuts what comes into lines."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._rest = say, b""

    def add(self, part: bytes) -> None:
        *whole, self._rest = (self._rest + part).split(b"\n")
        for line in whole:
            self._say(line.decode(errors="replace").rstrip("\r"))
        if len(self._rest) > LONGEST:
            self.end()

    def end(self) -> None:
        """The last one may have no end."""
        if self._rest:
            self._say(self._rest.decode(errors="replace"))
        self._rest = b""
