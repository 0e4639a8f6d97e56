"""Run history: records are private and complete."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_recorded_run_is_loaded_with_everything_in_it(state: Path) -> None:
    kept = run_history.save(["tune-nodes", "-i", "prod"], 1, {"gpu-1": {"status": "problems"}})
    assert run_history.names() == [kept.name]
    assert run_history.load(kept.name) == kept
    assert stat.S_IMODE((state / "runs").stat().st_mode) == 0o700
    assert stat.S_IMODE((state / f"runs/{kept.name}.json").stat().st_mode) == 0o600


def test_an_unknown_run_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no run has this name"):
        run_history.load("../../etc/passwd")
