"""Run history: records are private and complete."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.hosts.runs import group
from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_recorded_run_is_loaded_with_everything_in_it(state: Path) -> None:
    kept = replace(run_history.new(["tune-nodes", "-i", "prod"]), exit_code=1, hosts={"gpu-1": {"status": "problems"}})
    run_history.save(kept)
    assert run_history.names() == [kept.name]
    assert run_history.load(kept.name) == kept
    assert stat.S_IMODE((state / "runs").stat().st_mode) == 0o700
    assert stat.S_IMODE((state / f"runs/{kept.name}.json").stat().st_mode) == 0o600


def test_a_run_is_written_before_it_ends_and_completed_later() -> None:
    begun = run_history.new(["tune-nodes"])
    run_history.save(begun)
    assert run_history.load(begun.name).exit_code is None
    run_history.save(replace(begun, exit_code=0))
    assert [run_history.load(name).exit_code for name in run_history.names()] == [0]


@pytest.mark.parametrize(("limit", "kept"), [({"KEPT": 3}, 3), ({"KEPT_BYTES": 1}, 1)])
def test_the_oldest_records_are_removed(monkeypatch: pytest.MonkeyPatch, limit: dict[str, int], kept: int) -> None:
    for name, number in limit.items():
        monkeypatch.setattr(run_history, name, number)
    runs = [replace(run_history.new([]), name=f"20260101-00000{number}-1") for number in range(5)]
    for run in runs:
        run_history.save(run)
    assert run_history.names() == [run.name for run in runs[-kept:]]


def test_an_unknown_run_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no run has this name"):
        run_history.load("../../etc/passwd")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"name": "x", "at": "", "actor": 3}', "[" * 50_000])
def test_a_damaged_record_is_bad_input_and_named(state: Path, text: str) -> None:
    run_history.save(run_history.new(["tune-nodes"]))
    (state / "runs/20260101-000000-1.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"20260101-000000-1\.json") as refused:
        run_history.load("20260101-000000-1")
    assert refused.value.exit_code == 2


def test_the_other_runs_are_listed_beside_a_damaged_record(state: Path) -> None:
    run_history.save(run_history.new(["tune-nodes"]))
    (state / "runs/20260101-000000-1.json").write_text("{")
    listed = CliRunner().invoke(group, [])
    assert "tune-nodes" in listed.output
    assert isinstance(listed.exception, InvalidInput)
