"""Programs that stand in for Slurm's: each is a few lines of shell, and what they are called with is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuctl.edges.slurm import PROGRAMS


@dataclass(frozen=True)
class Site:
    """A machine with Slurm's programs, which do nothing unless told otherwise."""

    folder: Path

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.folder}/calls\n{script}\n')
        path.chmod(0o755)

    def calls(self, *words: str) -> list[str]:
        """What was called with all of these words, in its order."""
        kept = self.folder / "calls"
        lines = kept.read_text().splitlines() if kept.exists() else []
        return [line for line in lines if all(word in line.split() for word in words)]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """One that our own commands use."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    found = Site(folder)
    for name in PROGRAMS:
        found.program(name, "")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return found
