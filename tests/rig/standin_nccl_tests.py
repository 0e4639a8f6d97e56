"""A stand-in for all_reduce_perf: a shell script that prints a recorded log, prints an error, or hangs."""

from __future__ import annotations

import os
from pathlib import Path

from tests.rig.runner_promises import FAILURE, LOG, Behaviour

NAME = "all_reduce_perf"
HEADER = LOG.partition("#       size")[0]


class StandinTest:
    """The script in a folder; every run of it notes its process id there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "log").write_text(LOG)
        (folder / "header").write_text(HEADER)

    def behave(self, how: Behaviour) -> None:
        """Let every run from now on behave so."""
        program = self.folder / NAME
        if how is Behaviour.MISSING:
            program.unlink(missing_ok=True)
            return
        lines = {
            Behaviour.COMPLETE: f"cat {self.folder}/log",
            Behaviour.FAILED: f'cat {self.folder}/header\necho "{FAILURE.strip()}"\nexit 3',
            Behaviour.HANGING: f"cat {self.folder}/header\nexec sleep 1000",
        }
        program.write_text(f"#!/bin/sh\necho $$ >> {self.folder}/pids\n{lines[how]}\n")
        program.chmod(0o755)

    def left(self) -> list[str]:
        """The process ids of runs that have not ended."""
        pids = self.folder / "pids"
        return [pid for pid in pids.read_text().split() if _is_alive(int(pid))] if pids.exists() else []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
