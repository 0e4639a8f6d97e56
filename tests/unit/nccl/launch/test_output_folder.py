"""The folder for the output of runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.nccl.launch.output import create_folder


@pytest.fixture(autouse=True)
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """May do what the owner of a file may, as root may do anything."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).stat().st_mode >> 6 & mode == mode)


def test_a_folder_that_is_not_there_is_create_folder(tmp_path: Path) -> None:
    assert create_folder(tmp_path / "a/b") == tmp_path / "a/b"
    assert (tmp_path / "a/b").is_dir()
    assert create_folder(None) is None


@pytest.mark.parametrize("mode", [0o500, 0o600])
def test_a_folder_that_is_not_writable_is_refused_before_anything_runs(tmp_path: Path, mode: int) -> None:
    logs = tmp_path / "logs"
    logs.mkdir(mode=mode)
    with pytest.raises(GpuctlError, match=f"save the output of runs in {logs}: the folder is not writable"):
        create_folder(logs)


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    with pytest.raises(GpuctlError, match="File exists"):
        create_folder(tmp_path / "logs")
