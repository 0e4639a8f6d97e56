"""Run a command and say what it took: wall time, processor time and memory of everything it started here."""

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
class Took:
    """Seconds, processor seconds, and the peak of PSS in MiB (0 where it was not watched)."""

    wall: float
    cpu: float
    pss: float
    output: str


def run(argv: Sequence[str], cwd: Path, environment: Mapping[str, str], watch: bool = False, stdin: str = "") -> Took:
    """Run it to its end; `CalledProcessError` with its output where it fails."""
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
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv, output)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, cpu, peak, output)


class Watcher:
    """Adds up the PSS of a process and all it started, again and again. Costs time: not used in runs that are timed."""

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
    """A process and everything below it."""
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        for task in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            try:
                left += [int(child) for child in task.read_text().split()]
            except OSError:  # it has just ended
                continue
    return found


def pss(pid: int) -> float:
    """Proportional set size of one process, MiB; 0 when it has just ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("Pss:")), 0.0)
