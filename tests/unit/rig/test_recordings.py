"""Recordings are skipped where they are absent, required in CI, and never missing one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig import recordings


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GPUCTL_REQUIRE_RECORDINGS", raising=False)


def test_a_recording_is_read_from_the_folder_that_the_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_text("a")
    monkeypatch.setenv(recordings.VARIABLE, str(tmp_path))
    assert recordings.expected()
    assert recordings.recording("a.log").read_text() == "a"
    with pytest.raises(AssertionError, match=r"no recording b\.log"):
        recordings.recording("b.log")


def test_without_the_folder_a_test_is_skipped_with_the_way_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(recordings.VARIABLE, str(tmp_path / "absent"))
    assert not recordings.expected()
    with pytest.raises(pytest.skip.Exception, match="set GPUCTL_RECORDINGS"):
        recordings.recording("a.log")


@pytest.mark.parametrize(("variable", "value"), [("CI", "true"), ("GPUCTL_REQUIRE_RECORDINGS", "1")])
def test_where_recordings_are_required_their_absence_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(recordings.VARIABLE, str(tmp_path / "absent"))
    monkeypatch.setenv(variable, value)
    assert recordings.expected()
    with pytest.raises(pytest.fail.Exception, match="set GPUCTL_RECORDINGS"):
        recordings.recording("a.log")
