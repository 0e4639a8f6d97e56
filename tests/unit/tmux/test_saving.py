"""A save that cannot be used is passed over: the last good one counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.tmux import saving, session_file
from gpuctl.tmux.session import Pane, Session, Window


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))
    (tmp_path / "tmux").mkdir()
    return tmp_path / "tmux"


def put(place: Path, when: str, name: str) -> None:
    (place / f"{when}.yml").write_text(session_file.text(Session("~", (Window(name, (Pane(),)),))))


def test_an_empty_or_broken_save_never_hides_a_good_one(place: Path) -> None:
    put(place, "2026-01-01T10-00-00Z", "good")
    (place / "2026-01-01T11-00-00Z.yml").write_text("")
    (place / "2026-01-01T12-00-00Z.yml").write_text("windows: [{name: half")
    (place / "2026-01-01T13-00-00Z.draft").write_text("written halfway")
    save = saving.latest()
    assert save is not None
    assert save.session.windows[0].name == "good"


def test_a_save_can_be_named(place: Path) -> None:
    put(place, "2026-01-01T10-00-00Z", "old")
    put(place, "2026-01-02T10-00-00Z", "new")
    assert saving.named("").session.windows[0].name == "new"
    assert saving.named("2026-01-01T10-00-00Z").session.windows[0].name == "old"


def test_without_a_save_there_is_nothing_to_restore(place: Path) -> None:
    assert saving.latest() is None
    with pytest.raises(InvalidInput, match="nothing has been saved yet"):
        saving.named("")
