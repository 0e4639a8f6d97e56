"""Runs that are killed around the programs they start: update-grub, systemctl, apt-get."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.component.gpuhost.test_crash import Killed
from tests.rig.trees.boot import debian
from tests.rig.trees.host import content, put, states, tune, undo

KNOBS = {"cmdline.iommu": "pt"}
Act = Callable[..., Any]


def killed(root: Path, act: Act, boundary: int) -> bool:
    """Act in a child that dies at a boundary; False if it ends before that boundary."""
    child = os.fork()
    if child == 0:
        act(root, host=Killed(root, boundary))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def at_every_boundary(kept: Path, act: Act) -> Iterator[Path]:
    """A fresh copy of a host for each boundary, with the act killed there."""
    for boundary in range(1000):
        root = kept.with_name(f"host-{boundary}")
        shutil.copytree(kept, root, symlinks=True)
        if not killed(root, act, boundary):
            assert boundary >= 8, "the record twice, a file, a program: each with a boundary before and after it"
            return
        yield root
        shutil.rmtree(root)


def tuned(root: Path, **knobs: Any) -> dict[str, Any]:
    return tune(root, KNOBS, **knobs)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return debian(tmp_path / "kept")


def test_the_next_run_or_undo_ends_what_a_killed_run_began(kept: Path) -> None:
    for root in at_every_boundary(kept, tuned):
        again = root.with_name("again")
        shutil.copytree(root, again, symlinks=True)
        assert states(tuned(again)) == {"cmdline.iommu": "pending"}
        shutil.rmtree(again)
        undo(root)
        assert content(root) == content(kept)


def test_the_next_undo_ends_what_a_killed_undo_began(kept: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    shutil.copytree(kept, done, symlinks=True)
    tuned(done)
    for root in at_every_boundary(done, undo):
        undo(root)
        assert content(root) == content(kept)
        assert undo(root)["record"] is None


def test_an_undo_whose_update_grub_failed_is_not_taken_for_done(kept: Path) -> None:
    before = content(kept)
    tuned(kept)
    updater = (kept / "usr/bin/update-grub").read_text()
    put(kept, "/usr/bin/update-grub", "#!/bin/sh\necho 'No space left on device' >&2\nexit 1\n", 0o755)
    undo(kept)
    put(kept, "/usr/bin/update-grub", updater, 0o755)
    undo(kept)
    assert content(kept) == before
