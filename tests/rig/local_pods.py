"""A stand-in pod on this machine: the same program, started the same way, over pipes."""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from gpuctl.core.errors import Unreachable
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import Command
from gpuctl.edges.kube.pod_exec import Program as Started
from gpuctl.remote import packing
from gpuctl.remote.model import PodTarget, Program
from tests.rig.cluster.receiver import Process


class Pod:
    """Starts our program here, and remembers what it started."""

    def __init__(self, runs: Path, name: str = "here") -> None:
        self.processes: list[Process] = []
        self.broken = False
        self.target = PodTarget(
            cast(Cluster, None), name, "ml", python=sys.executable, runs=str(runs), start=self._start
        )

    def _start(self, _: Cluster, __: str, command: Command) -> Started:
        if self.broken:
            raise Unreachable("reach the pod", "it does not answer")
        self.processes.append(Process())
        return cast(Started, self.processes[-1])


def python(text: str, **given: Any) -> Program:
    """A program in Python."""
    return Program([sys.executable, "-c", text], **{"grace_s": 1.0, **given})


def until(true: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


def lives(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def later(seconds: float, work: Callable[[], object]) -> threading.Thread:
    """Do it in so many seconds."""
    found = threading.Timer(seconds, work)
    found.daemon = True
    found.start()
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def strangers(path: Path, carried: Sequence[str]) -> set[str]:
    """What a file imports that is neither carried nor Python's own; SyntaxError where an old Python cannot read it."""
    tree = ast.parse(path.read_text(), feature_version=packing.OLDEST)
    named = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    named |= {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
    ours = {*carried, *(each.rpartition(".")[0] for each in carried)}
    return {name for name in named - ours if name.partition(".")[0] not in sys.stdlib_module_names}
