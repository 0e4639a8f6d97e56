"""The program of a pod, run on this machine: the same text, started the same way, talked to by pipes."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gpuctl.cluster.sync import excludes
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.model import Outcome
from gpuctl.cluster.sync.pod.tree import OURS
from gpuctl.cluster.sync.push import PodSync, SyncRequest
from gpuctl.cluster.sync.stream import PodStream
from gpuctl.core.errors import Unreachable
from gpuctl.edges.kube.pod_exec import Done, Program
from gpuctl.remote import packing

TREE = {"train.py": "train", "pkg/a.py": "a", "pkg/deep/b.py": "b", "data/empty": ""}


class Process:
    """As `gpuctl.edges.kube.pod_exec.Program`. After `breaks_after` bytes of input the connection is gone."""

    def __init__(self, breaks_after: int = 0, python: str = sys.executable) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(packing.command(python), **pipes)
        self.breaks_after, self.sent = breaks_after, 0

    def send(self, data: bytes) -> None:
        assert self.process.stdin
        self.sent += len(data)
        if self.breaks_after and self.sent > self.breaks_after:
            self.process.stdin.write(data[: self.breaks_after - self.sent])
            self.close()
            raise Unreachable("sync to the pod here", "the connection broke before it ended")
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise EOFError from None

    def read(self) -> bytes:
        assert self.process.stdout
        return os.read(self.process.stdout.fileno(), 1 << 16)

    def waiting(self, wait_s: float = 0) -> bool:
        assert self.process.stdout
        return bool(select.select([self.process.stdout], [], [], wait_s)[0])

    def done(self) -> Done:
        assert self.process.stderr
        return Done(self.process.wait(10), self.process.stderr.read().decode())

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()
        self.process.wait(10)
        assert self.process.stderr
        self.process.stderr.close()


def open_stream(breaks_after: int = 0, pod: str = "here", python: str = sys.executable) -> PodStream:
    return PodStream(cast(Program, Process(breaks_after, python)), pod, python)


def first(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """What the pod's program does before anything else; `module` is its `serve`."""
    begins = "sys.exit(module.main())"
    monkeypatch.setattr(packing, "STARTER", packing.STARTER.replace(begins, f"{text}\n{begins}"))


@contextlib.contextmanager
def opened(source: Path, target: Path, *, force: bool = False, check: bool = False) -> Iterator[PodSync]:
    """What brings a folder there, begun."""
    with contextlib.closing(open_stream()) as stream:
        bringer = PodSync(
            stream, Local(source, excludes.read_patterns(source, [])), SyncRequest(str(target), force, check)
        )
        bringer.begin()
        yield bringer


def sync(source: Path, target: Path, *patterns: str, force: bool = False, breaks_after: int = 0) -> Outcome:
    """One sync, to its end."""
    stream = open_stream(breaks_after)
    try:
        bringer = PodSync(
            stream, Local(source, excludes.read_patterns(source, patterns)), SyncRequest(str(target), force)
        )
        bringer.begin()
        return bringer.carry_out(bringer.plan())
    finally:
        stream.close()


def fill(folder: Path, files: dict[str, str]) -> None:
    """Write files, and whatever folders they take."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def files(folder: Path) -> dict[str, str]:
    """The files of a folder with what is in them, without our own record."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_text(errors="replace") for name, path in found.items() if not name.startswith(OURS)}
