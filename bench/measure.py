"""Run a command and measure wall time, processor time and memory of all its local processes."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Timing:
    """Wall and processor seconds, and the peak PSS in MiB (0 if not watched).

    `cpu`: of the command and its local processes. `hosts_cpu`: of all processes of the hosts, if they were watched.
    """

    wall: float
    cpu: float
    pss: float
    output: str
    hosts_cpu: float | None = None


def run(  # noqa: PLR0913, PLR0917 - as subprocess.run
    argv: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    watch: bool = False,
    stdin: str = "",
    codes: Sequence[int] = (0,),
) -> Timing:
    """Run a command until it ends; `CalledProcessError` with its output unless it ends with one of these codes."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    watcher = Watcher(process.pid) if watch else None
    output, _ = process.communicate(stdin)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = watcher.stop() if watcher else 0.0
    if process.returncode not in codes:
        raise subprocess.CalledProcessError(process.returncode, argv, output)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timing(wall, cpu, peak, output)


class Watcher:
    """Samples the total PSS of a process and its descendants. Slow: not for timed runs."""

    def __init__(self, pid: int) -> None:
        self.pid, self.peak, self._ended = pid, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self.peak = max(self.peak, sum(pss(pid) for pid in tree(self.pid)))

    def stop(self) -> float:
        """The peak, in MiB."""
        self._ended.set()
        self._thread.join()
        return self.peak


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    pids, left = [], [pid]
    while left:
        pids.append(left.pop())
        for task in Path(f"/proc/{pids[-1]}/task").glob("*/children"):
            try:
                left += [int(child) for child in task.read_text().split()]
            except OSError:  # it has just ended
                continue
    return pids


def pss(pid: int) -> float:
    """Proportional set size of one process in MiB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("Pss:")), 0.0)
