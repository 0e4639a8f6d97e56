"""What the sync of a dev-session tells, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from gpuctl.cluster.dev import decide
from gpuctl.cluster.dev.decide import Action, Away, Changed, Reached
from gpuctl.cluster.sync.model import Kept, Outcome
from gpuctl.cluster.sync.targets import Target
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.kube.forward.model import Slot
from gpuctl.kube.forward.state_machine import Line
from gpuctl.kube.forward.state_machine import State as Standing
from gpuctl.remote.model import ProcessExit
from gpuctl.workflows.dev_session import PATIENT_S, DebugAddress, Loop, SyncEvents, end_of
from gpuctl.workflows.forward import PortRequest

GROUP_OF = {"lab-0": 0, "lab-1": 0, "lab-2": 1}
GROUPS = [[Target("lab-0", "ml", ("a",)), Target("lab-1", "ml", ("a",))], [Target("lab-2", "ml", ("b",))]]


class Screen:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def changed(self, version: int, _: Sequence[str]) -> None:
        self.said.append(f"changed {version}")

    def reached(self, outcome: Outcome, version: int) -> None:
        self.said.append(f"{outcome.pod} reached {version}")

    def away(self, outcome: Outcome) -> None:
        self.said.append(f"{outcome.pod} away")

    def out(self, part: bytes) -> None:
        raise AssertionError(part)

    def message(self, text: str) -> None:
        self.said.append(text)


class Idle:
    """A runner that is asked for nothing but a start or an end."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.asked.append(name)


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_sync_events_reach_the_screen_and_the_decisions(screen: Screen) -> None:
    posted: list[Any] = []
    events = SyncEvents(screen, GROUP_OF, posted.append)
    events.changed(2, ["a.py"])
    events.reached(Outcome("lab-2", Verdict.FAIL, kept=(Kept("a.py", "changed in the pod"),)), 2)
    events.away(Outcome("lab-1", Verdict.UNKNOWN, wrong="gone"))
    assert posted == [Changed(2, frozenset({"a.py"})), Reached(1, 2, frozenset({"a.py"})), Away(0)]
    assert screen.said == ["changed 2", "lab-2 reached 2", "lab-1 away"]


def test_a_pod_that_shares_a_folder_posts_nothing_and_a_full_disk_is_away(screen: Screen) -> None:
    posted: list[Any] = []
    events = SyncEvents(screen, GROUP_OF, posted.append)
    events.reached(Outcome("lab-1", Verdict.UNKNOWN, "sees", wrong="it still shows an older sync"), 2)
    events.reached(Outcome("lab-2", Verdict.FAIL, wrong="its disk is full"), 2)
    assert posted == [Away(1)]


def test_the_reason_of_a_delayed_restart_is_reported_once(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    runner: Any = Idle()
    loop = Loop(runner, GROUPS, screen)
    state = decide.begin(2, "train.py", at=-PATIENT_S * 10)
    monkeypatch.setattr("gpuctl.workflows.dev_session.time.monotonic", lambda: 0.0)
    for _ in range(2):
        loop.carry_out(replace(state, has={0: 1, 1: 0}), Action.NOTHING)
    loop.carry_out(replace(state, has={0: 1, 1: 1}, lacking={1: frozenset({"train.py"})}), Action.NOTHING)
    assert screen.said == ["waiting for lab-2 to receive the change", "not started: lab-2 did not take train.py"]
    assert runner.asked == []


def test_a_restart_names_the_changed_files(screen: Screen) -> None:
    runner: Any = Idle()
    changed = frozenset({"a.py", "b.py", "c.py", "d.py"})
    Loop(runner, GROUPS, screen).carry_out(decide.State({0: 2, 1: 2}, newest=2, ran=1, owing=changed), Action.STOP)
    assert screen.said == ["restart: a.py, b.py, c.py and 1 more changed"]
    assert runner.asked == ["end"]


def test_a_broken_debugger_forward_is_reported_once(screen: Screen) -> None:
    shown = DebugAddress(screen, PortRequest(5678, name="debug"))
    line = Line(Slot(((5678, 5678),), "lab-0", "uid"), Standing.RETRYING, why="it broke")
    for _ in range(3):  # a retry that is counted down shows again every second
        shown.show([line], "cannot watch the pods: timeout")
    assert screen.said.count("cannot watch the pods: timeout") == 1
    shown.show([line], "")
    shown.show([line], "cannot watch the pods: timeout")
    assert screen.said.count("cannot watch the pods: timeout") == 2


class Over:
    """A runner whose program is over."""

    name, last, broke, wrong = "train.py in lab-0", None, None, ""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


def test_a_session_that_ends_before_its_program_raises_the_reason() -> None:
    broken: Future[None] = Future()
    broken.set_exception(GpuctlError("sync any longer", "no pod can be synced to"))
    lost: Any = Over(wrong="it cannot be started: ./train.sh: Permission denied")
    with pytest.raises(GpuctlError, match="no pod can be synced to"):
        end_of(lost, [broken])
    with pytest.raises(GpuctlError, match="Permission denied"):
        end_of(lost, [])
    unread: Any = Over(broke=BrokenPipeError())
    with pytest.raises(BrokenPipeError):
        end_of(unread, [])
    well: Any = Over(last=ProcessExit(6))
    assert end_of(well, []).code == 6
