"""What was measured before stays, whoever adds to it."""

from __future__ import annotations

import errno
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.cli.nccl.report import history as command
from gpuctl.cli.nccl.report import report
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl import flow, history
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from tests.rig.nccl.builders import ended
from tests.rig.reports import valid_json

FINDING = Finding("baseline", "4 GiB", Verdict.FAIL, "300 of 365 GB/s", {"busbw_gbs": 300.0}, "isolate")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_what_is_kept_comes_back_as_it_was() -> None:
    runs = [ended("a", "b", busbw=300), ended("c", "d", busbw=None, rail="mlx5_1")]
    number = history.save_results("pairs", "prod", runs, [FINDING])
    shown = valid_json(CliRunner().invoke(report, [str(number), "-o", "json"]).output)
    assert (shown["command"], shown["exit_code"], shown["verdict"]) == ("nccl report", 0, FINDING.verdict)
    assert shown["findings"] == [{"target": "prod", **FINDING.as_dict()}]
    assert len(shown["launches"]) == len(runs)
    kept = history.load(number)
    assert kept.results == tuple(runs)
    assert kept.findings == (FINDING,)
    assert (kept.kind, kept.inventory, kept.nodes) == ("pairs", "prod", ["a", "b", "c", "d"])


def test_the_newest_comes_first_and_a_node_has_its_own() -> None:
    first = history.save_results("quick", "prod", [ended("a", "b", busbw=300)], [])
    second = history.save_results("quick", "prod", [ended("b", "c", busbw=300)], [])
    assert [m.id for m in history.latest(10)] == [second, first]
    assert [m.id for m in history.latest(10, "a")] == [first]
    assert [m.id for m in history.latest(1)] == [second]


def test_a_pods_measurements_are_found_by_its_node_and_by_its_name() -> None:
    first = history.save_results("quick", "lab", [ended("train-1 on gpu-1", "train-11 on gpu-17", busbw=300)], [])
    second = history.save_results("quick", "lab", [ended("train-1 on gpu-17", "train-2 on gpu-2", busbw=300)], [])
    assert [m.id for m in history.latest(10, "gpu-17")] == [second, first]
    assert [m.id for m in history.latest(10, "gpu-1")] == [first]
    assert [m.id for m in history.latest(10, "train-11")] == [first]
    assert [m.id for m in history.latest(10, "train-2 on gpu-2")] == [second]


def test_several_may_write_at_the_same_time() -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(
            pool.map(lambda i: history.save_results("single", "prod", [ended(f"n{i}", busbw=300)], []), range(24))
        )
    assert len(set(numbers)) == 24
    assert len(history.latest(100)) == 24


def test_only_its_owner_can_read_it() -> None:
    history.save_results("quick", "prod", [], [])
    assert stat.S_IMODE(history.file().stat().st_mode) == 0o600


def test_an_unknown_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no measurement has this number"):
        history.load(7)


def test_what_a_newer_gpuctl_wrote_is_left_alone() -> None:
    history.save_results("quick", "prod", [], [])
    with sqlite3.connect(history.file()) as store:
        store.execute("PRAGMA user_version = 99")
    with pytest.raises(GpuctlError, match="written by a newer gpuctl"):
        history.latest(1)


def test_a_file_that_is_no_history_is_told_and_left(state: Path) -> None:
    state.mkdir(mode=0o700)
    history.file().write_text("not a database, but somebody's notes" * 100)
    with pytest.raises(GpuctlError, match="use the history"):
        history.save_results("quick", "prod", [], [])
    assert history.file().read_text().startswith("not a database")


def test_a_node_that_nobody_measured_is_told_with_those_that_were() -> None:
    asked = CliRunner()
    assert "nothing was measured on nope, nor anywhere" in asked.invoke(command, ["--node", "nope"]).output
    history.save_results("quick", "prod", [ended("node-1", "node-2", busbw=300)], [])
    assert "measured on nope, but on node-1, node-2" in asked.invoke(command, ["--node", "nope"]).output
    assert "measured on nod-1: did you mean node-1?" in asked.invoke(command, ["--node", "nod-1"]).output
    assert "nothing" not in asked.invoke(command, ["--node", "node-1"]).output


def test_what_is_the_same_of_many_runs_is_one_line_with_their_names() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    runs = [ended(*pair, busbw=300 + at) for at, pair in enumerate(pairs)]
    history.save_results("pairs", "prod", runs, flow.findings("pairs", runs, RunContext(), Book({}, ())))
    shown = CliRunner().invoke(report, []).output
    assert shown.count("no baseline") == 1
    assert "not judged, no baseline: the log does not name the machine type" in shown
    assert "MEDIAN GB/S" in shown


def test_a_folder_that_cannot_be_written_is_named_and_no_file_is_to_be_moved_away(state: Path) -> None:
    state.write_text("")
    with pytest.raises(GpuctlError) as refused:
        history.save_results("pairs", "prod", [ended("a", "b", busbw=300)], [FINDING])
    assert refused.value.hint == f"let your user write in {state}, or set GPUCTL_STATE_DIR to another folder"


@pytest.mark.parametrize(
    ("pragma", "wrong", "hint"),
    [
        ("max_page_count = 1", "database or disk is full", "free space on the file system of {0}, or set"),
        (
            "query_only = 1",
            "attempt to write a readonly database",
            "let your user write {0}/nccl.sqlite3 and in its folder, or set",
        ),
    ],
)
def test_an_error_of_sqlite_has_its_remedy_and_the_file_stays(
    state: Path, monkeypatch: pytest.MonkeyPatch, pragma: str, wrong: str, hint: str
) -> None:
    """SQLite itself raises these errors, at limits that the connection gets."""
    connect = sqlite3.connect

    def limited(*words: Any, **options: Any) -> sqlite3.Connection:
        store: sqlite3.Connection = connect(*words, **options)
        store.execute(f"PRAGMA {pragma}")
        return store

    monkeypatch.setattr(sqlite3, "connect", limited)
    with pytest.raises(GpuctlError, match=wrong) as refused:
        history.save_results("quick", "prod", [], [])
    assert refused.value.hint == f"{hint.format(state)} GPUCTL_STATE_DIR to another folder"


def test_a_full_disk_is_no_matter_of_permission(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(history, "private", full)
    with pytest.raises(GpuctlError) as refused:
        history.save_results("quick", "prod", [], [])
    assert refused.value.hint.startswith(f"free space on the file system of {state}")
