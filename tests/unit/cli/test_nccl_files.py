"""The folder that is to keep what runs print."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuctl.cli.nccl.log_files import made
from gpuctl.core.errors import GpuctlError


@pytest.fixture(autouse=True)
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """May do what the owner of a file may, as root may do anything."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).stat().st_mode >> 6 & mode == mode)


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    assert made(tmp_path / "a/b") == tmp_path / "a/b"
    assert (tmp_path / "a/b").is_dir()
    assert made(None) is None


@pytest.mark.parametrize("mode", [0o500, 0o600])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path, mode: int) -> None:
    kept = tmp_path / "logs"
    kept.mkdir(mode=mode)
    with pytest.raises(GpuctlError, match=f"keep what runs print in {kept}: it cannot be written there"):
        made(kept)


def test_a_file_in_its_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    with pytest.raises(GpuctlError, match="File exists"):
        made(tmp_path / "logs")
