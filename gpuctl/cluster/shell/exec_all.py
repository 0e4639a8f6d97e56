"""Run one command in all pods concurrently; print output line by line, and report each exit code."""

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
from gpuctl.core.exit_codes import worst
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.edges.kube.pod_exec import BrokenOff, Command

MOST = 64  # pods at the same time
MAX_LINE = 1 << 16  # bytes of a line; a longer one is printed in parts
FAILED, NOT_RUN = 1, 3
LOOK_S = 0.2
NEVER = float("inf")  # a command may be silent for as long as it likes

Print = Callable[[str, str], None]  # pod, line


@dataclass(frozen=True)
class CommandResult:
    """Result in one pod; `code` None: it did not run to its end there, and `wrong` says why."""

    pod: str
    code: int | None
    wrong: str = ""


def run(
    cluster: Cluster, pods: Sequence[Object], argv: Sequence[str], show: Print, broken_off: Callable[[], bool]
) -> list[CommandResult]:
    """Run the command in every pod; ended everywhere once `broken_off` is true or nobody reads the output."""
    marked = programs.mark()

    def one(pod: Object, stop: Stop, show_line: Print) -> CommandResult:
        return _one(CommandTarget(cluster, pod, stop), marked, argv, show_line)

    return in_all(pods, one, show, broken_off)


def in_all(
    pods: Sequence[Object],
    job: Callable[[Object, Stop, Print], CommandResult],
    show: Print,
    broken_off: Callable[[], bool],
) -> list[CommandResult]:
    """Do a job for every pod concurrently; each ends early once its `Stop` is set. Results in pod order.

    `Stop` is set once `broken_off` is true, or `show` fails because nobody reads the output (`| head`); that error is
    raised afterwards.
    """
    stop = Stop()
    printer = LinePrinter(show, stop)
    with ThreadPoolExecutor(min(MOST, len(pods))) as pool:
        jobs = [pool.submit(job, pod, stop, printer.print_line) for pod in pods]
        while wait(jobs, LOOK_S).not_done:
            if broken_off():
                stop.set()
        results = [pending.result() for pending in jobs]
    if printer.wrong is not None and not broken_off():
        raise printer.wrong
    return results


class LinePrinter:
    """Prints one line at a time; `wrong`: why printing failed, which stops everything."""

    def __init__(self, show: Print, stop: Stop) -> None:
        self._show, self._stop, self._lock = show, stop, threading.Lock()
        self.wrong: OSError | None = None

    def print_line(self, pod: str, line: str) -> None:
        with self._lock:
            if self.wrong is not None:
                return
            try:
                self._show(pod, line)
            except OSError as error:
                self.wrong = error
                self._stop.set()


@dataclass(frozen=True)
class CommandTarget:
    """A pod to run in, and the flag that ends the command there."""

    cluster: Cluster
    pod: Object
    stop: Stop


def _one(place: CommandTarget, marked: str, argv: Sequence[str], show: Print) -> CommandResult:
    cluster, pod, stop = place.cluster, place.pod, place.stop
    name = pod_selection.name_of(pod)
    if why := pod_selection.why_not(pod):
        return CommandResult(name, None, why)
    if stop.is_set():
        return CommandResult(name, None, "interrupted before it started")
    lines = Lines(lambda line: show(name, line))
    try:
        command = Command(programs.enter(marked, argv, together=True), CONTAINER, NEVER, stop)
        return CommandResult(name, pod_exec.run(cluster, name, command, out=lines.add).code)
    except GpuctlError as error:
        return CommandResult(name, None, _after(cluster, name, marked, error))
    finally:
        lines.end()


def _after(cluster: Cluster, pod: str, marked: str, error: GpuctlError) -> str:
    """Explain why the command was not followed to its end, and what it left in the pod."""
    if not isinstance(error, BrokenOff | Unreachable):  # it never started
        return error.wrong
    why = "interrupted" if isinstance(error, BrokenOff) else error.wrong
    left = left_by(cluster, pod, marked)
    if left is None:
        return f"{why}; whether it still runs there is unknown"
    return f"{why}; {left.processes} of its processes could not be ended" if left.processes else why


def code(results: Sequence[CommandResult]) -> int:
    """Exit code: 0 if it ended with 0 everywhere, 1 if it failed in a pod, 3 if it did not run to its end in one."""
    return worst(NOT_RUN if result.code is None else FAILED if result.code else 0 for result in results)


class Lines:
    """Splits output into lines."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._rest = show, b""

    def add(self, part: bytes) -> None:
        *whole, self._rest = (self._rest + part).split(b"\n")
        for line in whole:
            self._show(line.decode(errors="replace").rstrip("\r"))
        if len(self._rest) > MAX_LINE:
            self.end()

    def end(self) -> None:
        """Print the last line, which may have no line end."""
        if self._rest:
            self._show(self._rest.decode(errors="replace"))
        self._rest = b""
