"""A run that is killed at any single change leaves a host that the next run completes, or undoes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Result
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.module import result

from tests.rig.trees.host import TreeHost, content, put, small_server, states, tune, undo, units

KNOBS = {"sysctl.vm.swappiness": "0", "sysctl.vm.max_map_count": "262144", "thp.enabled": "always"}
UNITS = "run/standin-units.json"


class Killed(TreeHost):
    """Ends its own process without warning at one boundary: number 2n is before the n-th change, 2n + 1 after it."""

    def __init__(self, root: Path, boundary: int) -> None:
        super().__init__(root)
        self.left = boundary

    @contextlib.contextmanager
    def changing(self, what: str) -> Iterator[None]:
        self._boundary()
        yield
        self._boundary()

    def _boundary(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def killed_run(root: Path, boundary: int) -> bool:
    """Tune in a child that dies at a boundary; False if the run ends before that boundary."""
    child = os.fork()
    if child == 0:
        tune(root, KNOBS, host=Killed(root, boundary))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def without_units(tree: dict[str, str]) -> dict[str, str]:
    return {path: text for path, text in tree.items() if path != UNITS}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return small_server(tmp_path / "kept")


def boundaries(kept: Path, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A fresh host for each boundary of the run, with the run killed there."""
    for boundary in range(1000):
        root = tmp_path / f"host-{boundary}"
        shutil.copytree(kept, root, symlinks=True)
        if not killed_run(root, boundary):
            assert boundary > 30, "the run has many changes, each with a boundary before and after it"
            return
        yield boundary, root
        shutil.rmtree(root)


def test_the_next_run_completes_what_a_killed_one_began(kept: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(kept, whole, symlinks=True)
    tune(whole, KNOBS)
    for boundary, root in boundaries(kept, tmp_path):
        answer = tune(root, KNOBS)
        assert set(states(answer).values()) == {"ok"}, boundary
        assert content(root) == content(whole), boundary
        undo(root)
        assert without_units(content(root)) == without_units(content(kept)), boundary


def test_undo_takes_back_what_a_killed_run_began(kept: Path, tmp_path: Path) -> None:
    for boundary, root in boundaries(kept, tmp_path):
        answer = undo(root)
        assert set(states(answer).values()) <= {"ok"}, (boundary, answer)
        assert without_units(content(root)) == without_units(content(kept)), boundary


def test_an_undo_that_is_killed_can_be_run_again(kept: Path, tmp_path: Path) -> None:
    tuned = tmp_path / "tuned"
    shutil.copytree(kept, tuned, symlinks=True)
    tune(tuned, KNOBS)
    for boundary in range(1000):
        root = tmp_path / f"host-{boundary}"
        shutil.copytree(tuned, root, symlinks=True)
        child = os.fork()
        if child == 0:
            undo(root, host=Killed(root, boundary))
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        answer = undo(root)
        assert set(states(answer).values()) <= {"ok"}, (boundary, answer)
        assert without_units(content(root)) == without_units(content(kept)), boundary
        shutil.rmtree(root)
        if not killed:
            assert boundary > 20
            return
    raise AssertionError("the undo never came to its end")


def test_the_record_and_its_folder_are_synced_before_the_first_change(kept: Path, tmp_path: Path) -> None:
    """System calls in order: power may fail after any of them."""
    trace = tmp_path / "trace"
    calls = "openat,fsync,rename,renameat,renameat2,mkdir,mkdirat"
    script = f"from tests.rig.trees.host import tune; from pathlib import Path; tune(Path({str(kept)!r}), {KNOBS!r})"
    strace = shutil.which("strace")
    assert strace, "strace is needed for this test: apt-get install strace"
    subprocess.run(
        [strace, "-y", "-e", f"trace={calls}", "-o", str(trace), sys.executable, "-c", script],
        check=True,
        cwd=Path.cwd(),
    )
    mine = [line for line in trace.read_text().splitlines() if str(kept) in line and "O_RDONLY" not in line]
    state = re.escape(f"{kept}/var/lib/gpuctl")
    order = [
        rf'mkdir\("{state}"',
        rf"fsync\(\d+<{re.escape(str(kept))}/var/lib>\)",
        rf'mkdir\("{state}/records"',
        rf"fsync\(\d+<{state}>\)",
        rf"fsync\(\d+<{state}/records/\.000001\.json\.gpuctl>\)",
        rf'rename\(.*"{state}/records/000001\.json"',
        rf"fsync\(\d+<{state}/records>\)",
    ]
    at = [next(i for i, line in enumerate(mine) if re.search(pattern, line)) for pattern in order]
    assert at == sorted(at), mine[:20]
    outside = [
        i for i, line in enumerate(mine) if not re.search(rf"{state}|/run/gpuctl|/var/lib>|\"{kept}/(var|run)\"", line)
    ]
    first_change = next(i for i in outside if re.search(r"O_WRONLY|rename", mine[i]))
    assert max(at) < first_change, mine[: first_change + 1]


class Moves(TreeHost):
    """The start of a service moves an interrupt, as irqbalance does; `killed`: the process ends right after it."""

    def __init__(self, root: Path, killed: bool) -> None:
        super().__init__(root)
        self.killed = killed

    def run(self, *argv: str, **options: Any) -> Result:
        result = super().run(*argv, **options)
        if argv[:2] == ("systemctl", "start"):
            put(Path(self.root), "/proc/sys/vm/swappiness", "42\n")
            if self.killed:
                os.kill(os.getpid(), signal.SIGKILL)
        return result


@pytest.fixture
def undo_killed(kept: Path) -> Path:
    """A host whose undo was killed after a service that it started changed a setting that was restored before."""
    units(kept, tuned__service={"boot": "enabled", "now": "active"})
    tune(kept, {"sysctl.vm.swappiness": "0", "unit.tuned.service": "stopped", "thp.enabled": "always"})
    child = os.fork()
    if child == 0:
        undo(kept, host=Moves(kept, killed=True))
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert (kept / "proc/sys/vm/swappiness").read_text() == "42\n"
    return kept


def test_the_next_undo_accuses_nobody_of_what_a_killed_one_caused(undo_killed: Path) -> None:
    assert set(states(undo(undo_killed)).values()) == {"ok"}
    assert (undo_killed / "proc/sys/vm/swappiness").read_text() == "60\n"


def test_a_completed_undo_ends_the_ownership_of_everything(undo_killed: Path) -> None:
    undo(undo_killed)
    for path, text in {"proc/sys/vm/swappiness": "10", "sys/kernel/mm/transparent_hugepage/enabled": "[never]"}.items():
        (undo_killed / path).write_text(f"{text}\n")  # somebody else's, from now on
    again = undo(undo_killed)
    assert (again["knobs"], again["record"]) == ([], None)


class Full(TreeHost):
    """Its disk is full from the second record on."""

    def replace(self, path: str, text: str, *more: Any, **options: Any) -> None:
        if "/records/" in path and '"done": true' in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().replace(path, text, *more, **options)


def test_a_disk_that_becomes_full_does_not_hide_what_was_changed(kept: Path) -> None:
    before = without_units(content(kept))
    answer = tune(kept, KNOBS, host=Full(kept))
    assert set(states(answer).values()) == {"ok"}
    assert all(knob["changed"] for knob in answer["knobs"] if knob["knob"] in KNOBS)
    assert (answer["record"], answer["unrecorded"]) == ("000001", "No space left on device")
    outcome = result(answer, check=False, strict=False, with_diff=False)
    assert outcome["failed"]
    assert outcome["msg"].startswith("the changes were made, but their record 000001 is incomplete: No space left")
    assert set(states(undo(kept)).values()) == {"ok"}
    assert without_units(content(kept)) == before


def test_a_disk_that_becomes_full_does_not_hide_what_was_restored(kept: Path) -> None:
    before = without_units(content(kept))
    tune(kept, KNOBS)
    answer = undo(kept, host=Full(kept))
    assert without_units(content(kept)) == before
    assert set(states(answer).values()) == {"ok"}
    assert all(knob["changed"] for knob in answer["knobs"])
    assert (answer["record"], answer["unrecorded"]) == ("000002", "No space left on device")
    assert set(states(undo(kept)).values()) == {"ok"}
    assert undo(kept)["knobs"] == []
