"""Several pods at once: those that share a folder, those that do not run, those whose connection breaks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from gpuctl.cluster.sync import excludes, flow
from gpuctl.cluster.sync.flow import PodConnector
from gpuctl.cluster.sync.local import Local
from gpuctl.cluster.sync.model import Outcome
from gpuctl.cluster.sync.push import SyncRequest
from gpuctl.cluster.sync.stream import PodStream
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import Unreachable
from gpuctl.domain.findings import Verdict
from gpuctl.edges.kube.cluster import Cluster
from tests.rig.cluster.receiver import files, fill, open_stream

TREE = {"train.py": "train", "pkg/a.py": "a"}
AWAY = "it is not running (Pending)"


@dataclass(frozen=True)
class Here(PodConnector):
    """Every pod is a program of this machine; `breaks`: after how many bytes each connection does, 0 for never."""

    breaks: list[int] = field(default_factory=list)

    @contextlib.contextmanager
    def stream(self, target: Target) -> Iterator[PodStream]:
        if target.wrong:
            raise Unreachable(f"sync to the pod {target.pod}", target.wrong)
        with contextlib.closing(open_stream(self.breaks.pop(0) if self.breaks else 0, target.pod)) as opened:
            yield opened


def way(*breaks: int) -> Here:
    return Here(cast(Cluster, None), breaks=list(breaks))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    fill(tmp_path / "here", TREE)
    return tmp_path / "here"


def target(number: int, wrong: str = "") -> Target:
    return Target(f"a-{number}", "ml", ("claim", "workspace", "."), wrong)


def sync(by: Here, here: Path, there: Path, *targets: Target, check: bool = False) -> list[Outcome]:
    return flow.sync(by, targets, Local(here, excludes.read_patterns(here, [])), SyncRequest(str(there), check=check))


def test_pods_that_share_a_folder_get_it_once_and_all_are_asked(here: Path, there: Path) -> None:
    found = sync(way(), here, there, target(0), target(1), target(2))
    assert [(each.pod, each.kind, each.files) for each in found] == [
        ("a-0", "sync", 2),
        ("a-1", "sees", 2),
        ("a-2", "sees", 2),
    ]
    assert {each.verdict for each in found} == {Verdict.OK}
    assert files(there) == TREE


def test_another_takes_it_where_the_first_does_not_run_which_is_then_unknown(here: Path, there: Path) -> None:
    first, second = sync(way(), here, there, target(0, AWAY), target(1))
    assert (second.kind, second.files) == ("sync", 2)
    assert (first.kind, first.verdict, first.wrong) == ("sees", Verdict.UNKNOWN, AWAY)


def test_where_none_runs_none_is_fine(here: Path, there: Path) -> None:
    found = sync(way(), here, there, target(0, AWAY), target(1, AWAY))
    assert [each.verdict for each in found] == [Verdict.UNKNOWN] * 2
    assert found[1].wrong == "it shares the folder of a-0, which was not synced"
    assert not there.exists()


def test_a_pod_that_sees_something_else_is_unknown(here: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "SHARED_S", 0)
    monkeypatch.setattr(flow, "PAUSE_S", 0)
    sync(way(), here, there, target(0))
    wanted = SyncRequest(str(there))
    older = flow.check_shared(way(), target(1), wanted, {}, "another generation")
    assert (older.verdict, older.wrong) == (Verdict.UNKNOWN, "it still shows an older sync")
    other = flow.check_shared(
        way(), target(1), wanted, {"train.py": ("file", "0" * 64), "gone": ("file", "1" * 64)}, "x"
    )
    assert other.wrong == "2 files differ there, such as train.py"
    assert "network file system" in other.hint


def test_a_connection_that_breaks_is_made_again_and_at_last_given_up(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "PAUSE_S", 0)
    (outcome,) = sync(way(1000, 3000), here, there, target(0))
    assert (outcome.verdict, files(there)) == (Verdict.OK, TREE)
    (outcome,) = sync(way(1000, 1000, 1000), here, there, target(0))
    assert (outcome.verdict, outcome.wrong) == (Verdict.UNKNOWN, "the connection broke before it ended")


@dataclass(frozen=True)
class Lost(Here):
    """Of the first connection nobody hears any more, and the pod does not know it yet."""

    left: list[PodStream] = field(default_factory=list)

    @contextlib.contextmanager
    def stream(self, target: Target) -> Iterator[PodStream]:
        if self.left:
            with super().stream(target) as opened:
                yield opened
            return
        self.left.append(open_stream(pod=target.pod))
        yield self.left[0]
        raise Unreachable("sync", "it has not answered for 60 s")


def test_a_sync_takes_the_folder_from_its_own_connection_that_broke(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "PAUSE_S", 0)
    lost = Lost(cast(Cluster, None))
    (outcome,) = sync(lost, here, there, target(0))
    with contextlib.suppress(BrokenPipeError):
        lost.left[0].close()
    assert (outcome.verdict, outcome.wrong) == (Verdict.OK, "")


def test_a_pod_that_does_not_run_is_unknown_in_a_check_too(here: Path, there: Path) -> None:
    _, runs, away = sync(way(), here, there, target(0), target(1), target(2, AWAY), check=True)
    assert (runs.verdict, runs.shares) == (Verdict.OK, "a-0")
    assert (away.verdict, away.wrong) == (Verdict.UNKNOWN, AWAY)


def test_a_check_asks_only_one_of_those_that_share_a_folder(here: Path, there: Path) -> None:
    first, second = sync(way(), here, there, target(0), target(1), check=True)
    assert (first.files, second.kind, second.verdict) == (2, "sees", Verdict.OK)
    assert not there.exists()
