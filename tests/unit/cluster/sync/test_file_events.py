"""Changes of a local folder, as the operating system reports them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.cluster.sync import file_events
from gpuctl.edges import folder_events
from gpuctl.edges.kube.cancel import Stop


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source" / "pkg").mkdir(parents=True)
    return tmp_path / "source"


@pytest.fixture
def stop() -> Iterator[Stop]:
    """Set after a generous limit, so that a change that is never reported fails a test instead of hanging it."""
    stop = Stop()
    limit = threading.Timer(30, stop.set)
    limit.start()
    yield stop
    limit.cancel()
    stop.set()


def reported(events: Iterator[set[str]], path: str) -> bool:
    return any(path in changed for changed in events)


def test_a_name_that_is_not_utf8_reads_the_whole_folder_again_and_ends_nothing(source: Path, stop: Stop) -> None:
    events = file_events.changes(source, stop)
    assert next(events) == {""}
    with open(os.fsencode(source) + b"/pkg/caf\xe9.py", "wb") as file:  # noqa: PTH123 - pathlib has no bytes
        file.write(b"1")
    assert reported(events, "")
    assert reported(events, "")  # of the watch that follows: whatever changed before it began
    (source / "pkg" / "later.py").write_text("1")
    assert reported(events, "pkg/later.py")


def test_below_a_link_to_a_folder_above_changes_keep_their_own_paths(source: Path, stop: Stop) -> None:
    (source / "up").symlink_to("..")
    events = file_events.changes(source, stop)
    next(events)
    (source / "pkg" / "a.py").write_text("1")
    assert reported(events, "pkg/a.py")
    assert folder_events._inside(source, f"{source}/up/source/pkg/a.py") == "pkg/a.py"
    assert folder_events._inside(source, f"{source}/up/source") == ""


def test_changes_behind_a_link_out_of_the_folder_are_not_reported_and_the_link_itself_is(source: Path) -> None:
    (source.parent / "elsewhere").mkdir()
    (source / "link").symlink_to("../elsewhere")
    assert folder_events._inside(source, f"{source}/link/data.bin") is None
    assert folder_events._inside(source, f"{source}/link") == "link"
