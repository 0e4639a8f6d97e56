"""Changes of a local folder, as the operating system reports them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.cluster.sync import excludes, file_events
from gpuctl.cluster.sync.local import Local
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


@pytest.fixture
def events(source: Path, stop: Stop) -> Iterator[set[str]]:
    """Changes of the folder, as `sync --watch` sees them."""
    return observed(source, stop)


def observed(source: Path, stop: Stop) -> Iterator[set[str]]:
    """Yield changes of a folder that is read again after each."""
    local = Local(source, excludes.read_patterns(source, []))
    for changed in file_events.changes(source, local.folders, stop):
        local.rescan(changed)
        yield changed


def test_a_name_that_is_not_utf8_reads_the_whole_folder_again_and_ends_nothing(
    source: Path, events: Iterator[set[str]]
) -> None:
    assert next(events) == {""}
    with open(os.fsencode(source) + b"/pkg/caf\xe9.py", "wb") as file:  # noqa: PTH123 - pathlib has no bytes
        file.write(b"1")
    assert reported(events, "")
    assert reported(events, "")  # of the watch that follows: whatever changed before it began
    (source / "pkg" / "later.py").write_text("1")
    assert reported(events, "pkg/later.py")


def test_a_folder_whose_name_is_not_utf8_does_not_have_all_read_again_all_the_time(source: Path, stop: Stop) -> None:
    os.mkdir(os.fsencode(source) + b"/caf\xe9")  # noqa: PTH102 - pathlib has no bytes
    readings, end = 0, time.monotonic() + 5
    for changed in observed(source, stop):
        if "" in changed:
            readings += 1
            time.sleep(0.2)  # as in a large folder
        if time.monotonic() > end:
            break
    assert readings <= 5  # it would be 11


def test_below_a_link_to_a_folder_above_changes_keep_their_own_paths(source: Path, events: Iterator[set[str]]) -> None:
    (source / "up").symlink_to("..")
    next(events)
    (source / "pkg" / "a.py").write_text("1")
    assert reported(events, "pkg/a.py")


def test_links_are_not_followed_out_of_the_folder_and_excluded_folders_are_not_watched(
    source: Path, stop: Stop
) -> None:
    for number in range(50):
        (source.parent / "elsewhere" / str(number)).mkdir(parents=True)
        (source / ".git" / str(number)).mkdir(parents=True)
    (source / "link").symlink_to("../elsewhere")
    before, events = inotify_watches(), observed(source, stop)
    next(events)
    assert inotify_watches() - before <= 2  # the folder and pkg
    (source / "link").unlink()
    assert reported(events, "link")


def inotify_watches() -> int:
    """Folders that this process watches."""
    infos = Path("/proc/self/fdinfo").iterdir()
    return sum(text.count("inotify wd") for text in map(read_if_open, infos))


def read_if_open(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_a_new_folder_is_watched_with_those_below_it(source: Path, events: Iterator[set[str]]) -> None:
    next(events)
    (source / "new" / "deep").mkdir(parents=True)
    assert reported(events, "new")
    assert reported(events, "")  # of the watch that follows
    (source / "new" / "deep" / "a.py").write_text("1")
    assert reported(events, "new/deep/a.py")


def test_a_folder_that_goes_away_ends_nothing(source: Path, events: Iterator[set[str]]) -> None:
    next(events)
    (source / "pkg").rmdir()
    assert reported(events, "pkg")
    (source / "a.py").write_text("1")
    assert reported(events, "a.py")
