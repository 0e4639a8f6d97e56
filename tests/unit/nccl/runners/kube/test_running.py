"""A launch's end: what is removed, what is said of nodes then, and a log that nobody ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Kind
from gpuctl.nccl.model import Launch, Outcome, Sweep
from gpuctl.nccl.runners.kube import cleanup, pod_placement
from gpuctl.nccl.runners.kube import launch as running
from gpuctl.nccl.runners.kube.model import COMPONENT, LAUNCHER, RUN, Task
from tests.unit.nccl.runners.kube.test_objects import EFA

PAIR = Task("0a1b2c3d", 0, Launch(("node-1", "node-2"), Sweep()), EFA, "ann@desk")
ALONE = Task("0a1b2c3d", 0, Launch(("node-1",), Sweep()), EFA, "ann@desk")

DATA = Path(__file__).parents[4] / "data/nccl"


class Removal:
    """A cluster in which these objects do not go, or that does not let us remove any."""

    namespace = "burn-in"

    def __init__(self, *left: dict[str, Any], error: GpuctlError | None = None) -> None:
        self.left, self.error = left, error

    def kind(self, api_version: str, kind: str) -> Kind:
        return Kind(api_version, kind, f"{kind.lower()}s", True)

    def serves(self, *_: str) -> bool:
        return False

    def remove(self, kinds: Sequence[Kind], *_: object) -> list[dict[str, Any]]:
        if self.error:
            raise self.error
        return [each for each in self.left if each["kind"] == kinds[0].kind]


def left(kind: str, name: str, **state: Any) -> dict[str, Any]:
    status = {"containerStatuses": [{"state": state or {"running": {}}}]}
    return {"kind": kind, "metadata": {"name": name, "labels": {RUN: PAIR.run}}, "spec": {}, "status": status}


def lost(task: Task, cluster: Any) -> tuple[tuple[str, ...], str]:
    found = cleanup.remove(cluster, task)
    return found.lost, found.left


def test_a_pod_that_does_not_end_makes_its_node_lost() -> None:
    found, said = lost(PAIR, Removal(left("Pod", "nccl-0a1b2c3d-0-w1")))
    assert found == ("node-2",)
    assert said == "not removed after 120 s: nccl-0a1b2c3d-0-w1"


@pytest.mark.parametrize(
    "error", [Unreachable("list pods", "no answer"), GpuctlError("delete Pod p", "a webhook refused")]
)
def test_an_api_that_removes_nothing_makes_no_node_lost(error: GpuctlError) -> None:
    found, said = lost(PAIR, Removal(error=error))
    assert found == ()
    until = "its pods end 1320 s after their start at the latest, and hold their GPUs until then"
    assert said == f"not removed: {error.wrong}; {until}; after that your next run removes it, or `gpuctl nccl clean`"


@pytest.mark.parametrize(("mpijob", "kinds"), [(False, "pods"), (True, "mpijobs,pods")])
def test_what_we_may_not_remove_is_not_promised_to_be_removed_by_our_next_run(mpijob: bool, kinds: str) -> None:
    task = replace(PAIR, settings=replace(EFA, mpijob=mpijob))
    found, said = lost(task, Removal(error=Forbidden("delete Pod p", '"ann" may not delete pods')))
    assert found == ()
    assert "next run" not in said
    assert f"`kubectl delete -n burn-in {kinds},services,secrets -l gpuctl/run=0a1b2c3d-0`" in said


def test_a_pod_that_has_ended_and_is_held_by_somebody_makes_no_node_lost() -> None:
    assert lost(PAIR, Removal(left("Pod", "nccl-0a1b2c3d-0-w1", terminated={"exitCode": 0})))[0] == ()


def test_what_is_no_pod_makes_no_node_lost() -> None:
    assert lost(ALONE, Removal(left("Secret", "nccl-0a1b2c3d-0")))[0] == ()


class Ended:
    """Pods of a launch whose launcher has ended."""

    def known(self, task: Task) -> dict[str, Any]:
        launcher = left("Pod", "l", terminated={"exitCode": 0})
        launcher["metadata"]["labels"][COMPONENT] = LAUNCHER
        return pod_placement.pods_of_launch(task, [launcher])


def test_a_log_that_goes_on_after_its_container_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    one = running.Running(Any, Ended(), PAIR, lambda *_: None, None)  # type: ignore[arg-type]
    now, again = 1000.0, []
    monkeypatch.setattr("gpuctl.nccl.runners.kube.launch.time.monotonic", lambda: now)
    monkeypatch.setattr(one.reading, "again", lambda: again.append(now))
    one.has_begun, one.begun, one.checked = True, now, now
    for _ in range(14):
        now += 1
        one.enforce_limit(broken_off=False)
    assert again == [1007.0, 1013.0]


class Slow(Removal):
    """A cluster whose pods take long to go: the launch is looked at meanwhile, after its limit."""

    launch: running.Running

    def remove(self, *_: object) -> list[dict[str, Any]]:
        self.launch.begun = time.monotonic() - 10_000
        self.launch.enforce_limit(broken_off=False)
        self.launch.enforce_limit(broken_off=True)
        return []


def complete(cluster: Any, said: list[str], monkeypatch: pytest.MonkeyPatch) -> running.Running:
    """A launch that ends well by itself."""
    one = running.Running(cluster, Ended(), ALONE, lambda _, words: said.append(words), None)  # type: ignore[arg-type]
    text = (DATA / "a100_8g_allreduce_old_unchecked.log").read_text().splitlines()

    def begin() -> None:
        one.has_begun = True

    monkeypatch.setattr(one, "_begin", begin)
    monkeypatch.setattr(one, "_read", lambda: iter(text))
    monkeypatch.setattr(one, "_wait_for_the_end", lambda: None)
    return one


def test_what_cannot_be_removed_is_told_and_kept_with_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    ended = complete(Removal(error=Unreachable("list pods", "no answer")), said, monkeypatch).to_its_end()
    assert (ended.run.outcome, ended.lost) == (Outcome.COMPLETE, ())
    assert ended.left.startswith("not removed: no answer")
    assert ended.left in said


def test_a_test_that_has_ended_does_not_hang_while_its_pods_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    cluster = Slow()
    cluster.launch = complete(cluster, said, monkeypatch)
    ended = cluster.launch.to_its_end()
    assert (ended.run.outcome, ended.left) == (Outcome.COMPLETE, "")
    assert not any("not finished within its limit" in words for words in said)
