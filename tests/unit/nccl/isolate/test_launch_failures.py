"""Launches that never began, and lost contact: nobody is accused, and it is said why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate.model import Conclusion
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run
from tests.rig.nccl.simulated import CALM, Played, known, net, play, play_fleet, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet

WHY = "0/8 nodes are available: 1 Insufficient nvidia.com/gpu"


def closed(count: int, *nodes: int, faults: Sequence[Fault] = (), rack: int = 0) -> Played:
    """A fleet some nodes of which nothing ever begins on."""
    network = net(count, rack)
    why = {f"node-{node}": f"node-{node}: {WHY}" for node in nodes}
    return play_fleet(known(network), SimulatedFleet(network, CALM, seeded(1), faults, closed=why))


def unknown(end: Conclusion) -> list[Finding]:
    return [finding for finding in end.findings if finding.verdict is Verdict.UNKNOWN]


@pytest.mark.parametrize("count", [3, 4, 5, 6, 16, 64])
def test_a_node_that_no_launch_begins_on_could_not_be_tested_and_is_not_accused(count: int) -> None:
    played = closed(count, 1)
    assert (played.named, played.end.unresolved) == ([], ())
    (finding,) = [f for f in played.end.findings if f.subject == "node-1"]
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.message == f"could not be tested: node-1: {WHY}"
    assert "node-1" not in played.simulated.rounds[-1][0].nodes
    assert len(played.simulated.rounds[-1][0].nodes) == count - 1


def test_its_partner_is_tested_with_another_and_a_bad_node_is_still_named() -> None:
    played = closed(16, 1, faults=[slow(0, 0.3)])
    assert played.named == ["node-0"]
    assert [finding.subject for finding in unknown(played.end)] == ["node-1"]


def test_where_nothing_begins_anywhere_it_is_said_once() -> None:
    played = closed(4, 0, 1, 2, 3)
    (finding,) = unknown(played.end)
    assert (played.named, finding.subject) == ([], "every node")
    assert WHY in finding.message


def test_where_most_launches_never_begin_no_more_are_made() -> None:
    played = closed(32, *range(0, 32, 2))
    (finding,) = unknown(played.end)
    assert played.sizes == [16]
    assert "16 of 16 launches never started: node-0: 0/8 nodes are available" in finding.message


def test_two_nodes_that_begin_with_others_but_not_together_are_told_and_accused_of_nothing() -> None:
    class NotTogether(SimulatedFleet):
        def _run(self, launch: Launch, leaving: object) -> LaunchResult:
            if launch.nodes == ("node-2", "node-3"):
                run = Run(Outcome.FAILED, "node-3: the first node may not log in there over ssh", None, (), None, None)
                return LaunchResult(launch, run, 1.0)
            return super()._run(launch, leaving)  # type: ignore[arg-type]

    network = net(16)
    played = play_fleet(known(network), NotTogether(network, CALM, seeded(1)))
    (finding,) = [f for f in played.end.findings if f.verdict is Verdict.WARN]
    assert (played.named, finding.subject) == ([], "node-2 and node-3")
    assert "may not log in there" in finding.message


@dataclass
class Unreachable(SimulatedFleet):
    """From a round on, nobody answers any more."""

    since: int = 0
    silent: frozenset[str] = field(default_factory=frozenset)

    def run(
        self, launches: Sequence[Launch], told: Callable[[Launch, str], None], broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        ended = super().run(launches, told, broken_off)
        return [self._lost(end) for end in ended] if len(self.rounds) > self.since else ended

    def _lost(self, end: LaunchResult) -> LaunchResult:
        lost = tuple(node for node in end.launch.nodes if node in self.silent)
        run = self._spoken(LaunchResult(end.launch, Run(Outcome.HUNG, "no output", None, (), None, None), 180.0, lost))
        return run if lost else end


def unreachable(count: int, since: int, silent: Sequence[int], faults: Sequence[Fault] = ()) -> Played:
    network, nodes = net(count), frozenset(f"node-{node}" for node in silent)
    return play_fleet(known(network), Unreachable(network, CALM, seeded(1), faults, since=since, silent=nodes))


@pytest.mark.parametrize("count", [2, 3, 4, 12])
def test_where_all_nodes_stop_answering_at_one_time_nobody_is_accused(count: int) -> None:
    played = unreachable(count, 0, range(count))
    (finding,) = unknown(played.end)
    assert played.named == []
    assert "stopped answering: we lost contact" in finding.message


def test_where_more_than_half_stop_answering_nobody_is_accused() -> None:
    assert unreachable(12, 0, range(7)).named == []


def test_contact_lost_in_the_confirmation_accuses_nobody_but_who_was_proved_bad_before() -> None:
    played = unreachable(12, 2, range(12), [slow(3, 0.4)])
    assert played.named == ["node-3"]
    assert len(unknown(played.end)) == 1


def test_a_few_that_stop_answering_are_still_named() -> None:
    assert sorted(unreachable(12, 0, [2, 5]).named) == ["node-2", "node-5"]


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("kind", ["hang", "crash", "corrupt"])
def test_where_every_pair_of_a_few_nodes_fails_nobody_is_accused(count: int, kind: str) -> None:
    played = play(net(count), [Fault(kind, "node", (f"node-{node}",)) for node in range(count)])
    assert played.named == []
    assert "no pair of nodes ever ran well" in played.end.unresolved[0].why
