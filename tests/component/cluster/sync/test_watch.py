"""A watch: what it tells, what ends it, and what becomes of the folder meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from gpuctl.cluster.sync import excludes, watch
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.model import Outcome
from gpuctl.cluster.sync.push import SyncRequest
from gpuctl.cluster.sync.targets import Target
from gpuctl.domain.findings import Verdict
from gpuctl.edges.kube.cluster import Cluster
from tests.component.cluster.sync.test_flow import Here
from tests.component.cluster.sync.test_push import NO_ROOM
from tests.rig.cluster.receiver import TREE, files, fill, first
from tests.rig.local_pods import until

POD = Target("a-0", "ml", ("pod", "a-0"))


class Told:
    """Keeps what a watch tells. `breaks`: what becomes of whoever tells that a pod has it."""

    def __init__(self, breaks: Exception | None = None) -> None:
        self.outcomes: list[Outcome] = []
        self.changes: list[Sequence[str]] = []
        self.breaks = breaks

    def changed(self, _: int, paths: Sequence[str]) -> None:
        self.changes.append(paths)

    def reached(self, outcome: Outcome, _: int) -> None:
        self.outcomes.append(outcome)
        if self.breaks:
            raise self.breaks

    def away(self, outcome: Outcome) -> None:
        raise AssertionError(outcome)

    @property
    def last(self) -> Outcome:
        return self.outcomes[-1]


def settings(here: Path, there: Path, told: Told) -> watch.Settings:
    return watch.Settings(
        Here(cast(Cluster, None)), Local(here, excludes.read_patterns(here, [])), SyncRequest(str(there)), told
    )


@pytest.fixture
def told(here: Path, there: Path) -> Iterator[Told]:
    """Of a watch that has brought everything once."""
    found = Told()
    of = settings(here, there, found)
    thread = threading.Thread(target=watch.watch, args=(of, [POD]))
    thread.start()
    until(lambda: found.outcomes)
    yield found
    of.connector.stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_folder_that_goes_away_deletes_nothing_and_the_next_of_its_name_is_watched(
    here: Path, there: Path, told: Told, tmp_path: Path
) -> None:
    here.rename(tmp_path / "away")
    until(lambda: told.last.verdict is Verdict.FAIL)
    assert [each.path for each in told.last.failed] == ["."]
    assert files(there) == TREE
    fill(here, {**TREE, "new.py": "new"})
    until(lambda: files(there) == files(here))
    (here / "new.py").write_text("newer")
    until(lambda: files(there)["new.py"] == "newer")
    until(lambda: told.last.verdict is Verdict.OK)
    assert sum(each.deleted for each in told.outcomes) == 0


def test_what_the_thread_of_a_pod_did_not_expect_ends_the_watch(here: Path, there: Path) -> None:
    with pytest.raises(BrokenPipeError):
        watch.watch(settings(here, there, Told(BrokenPipeError())), [POD])


def test_a_change_that_no_event_told_of_is_reported_by_its_paths(here: Path, there: Path) -> None:
    found = Told()
    of = settings(here, there, found)
    (here / "train.py").write_text("newer")
    (here / "data/empty").unlink()
    watch._take_in(set(), of, threading.Condition(), read=float("-inf"))
    assert found.changes == [["data/empty", "train.py"]]


def test_a_full_disk_is_tried_again_without_a_change_here(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    first(monkeypatch, NO_ROOM)
    monkeypatch.setattr(watch, "FULL_S", 0.1)
    (there / ".gpuctl-sync").mkdir(parents=True)
    (there / ".gpuctl-sync/full").touch()
    told: Told = request.getfixturevalue("told")
    until(lambda: len(told.outcomes) > 1)
    assert told.last.wrong == "its disk is full (No space left on device)"
    (there / ".gpuctl-sync/full").unlink()
    until(lambda: told.last.verdict is Verdict.OK)
    assert files(there) == TREE
