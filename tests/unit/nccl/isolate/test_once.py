"""A fault that shows in one run and not again: wrong values stay FAIL, a hang or a crash is told, neither is OK."""

from __future__ import annotations

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate.model import Fleet
from tests.rig.nccl.simulated import CALM, Played, known, net, play, play_fleet, seeded
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet

FLEETS = [(8, 0), (12, 4), (64, 8)]


def once(count: int, rack: int, kind: str, *, racks_known: bool = True) -> Played:
    network = net(count, rack)
    fleet = known(network) if racks_known else Fleet(network.nodes)
    fault = Fault(kind, "node", ("node-5",), times=1)
    return play_fleet(fleet, SimulatedFleet(network, CALM, seeded(1), [fault]))


def about(played: Played, verdict: Verdict) -> list[Finding]:
    return [f for f in played.end.findings if f.verdict is verdict and "node-5" in f.subject.split(" and ")]


@pytest.mark.parametrize("racks_known", [True, False])
@pytest.mark.parametrize(("count", "rack"), FLEETS)
def test_wrong_values_that_do_not_come_back_fail_the_pair_and_are_not_chance(
    count: int, rack: int, racks_known: bool
) -> None:
    played = once(count, rack, "corrupt", racks_known=racks_known)
    (finding,) = about(played, Verdict.FAIL)
    assert "printed wrong values" in finding.message
    assert (played.named, played.end.chance) == ([], ())
    assert not any("no node stands out" in finding.message for finding in played.end.findings)


def test_wrong_values_are_followed_by_runs_of_the_pair_and_of_each_node_with_good_ones() -> None:
    played = once(12, 4, "corrupt")
    (finding,) = about(played, Verdict.FAIL)
    pair = set(finding.subject.split(" and "))
    runs = [set(launch.nodes) for launches in played.simulated.rounds for launch in launches]
    assert sum(nodes == pair for nodes in runs) >= 4
    assert all(sum(node in nodes and nodes != pair for nodes in runs) >= 3 for node in pair)


@pytest.mark.parametrize("kind", ["hang", "crash"])
@pytest.mark.parametrize(("count", "rack"), FLEETS)
def test_a_single_hang_or_crash_is_told_with_both_nodes(count: int, rack: int, kind: str) -> None:
    played = once(count, rack, kind)
    (finding,) = about(played, Verdict.WARN)
    assert len(finding.subject.split(" and ")) == 2
    assert played.named == []


def test_wrong_values_that_come_and_go_name_the_node() -> None:
    named = [play(net(16), [Fault("corrupt", "node", ("node-5",), chance=0.6)], seed=seed).named for seed in range(8)]
    assert all(names in ([], ["node-5"]) for names in named)
    assert named.count(["node-5"]) >= 4


def test_wrong_values_of_all_together_fail_though_the_next_run_is_right() -> None:
    class Together(SimulatedFleet):
        def _shows(self, fault: Fault) -> bool:
            return len(self.rounds[-1][0].nodes) > 2 and super()._shows(fault)

    network = net(16)
    fault = Fault("corrupt", "node", ("node-3",), times=1)
    played = play_fleet(known(network), Together(network, CALM, seeded(1), [fault]))
    (finding,) = [f for f in played.end.findings if f.verdict is Verdict.FAIL]
    assert "1 of their 2 runs printed wrong values" in finding.message
    assert played.named == []
