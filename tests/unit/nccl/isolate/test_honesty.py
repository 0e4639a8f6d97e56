"""Where the evidence does not suffice nobody is accused, and it is said why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.model import LaunchResult
from tests.rig.nccl.simulated import CALM, known, net, play, play_fleet, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet


def test_of_two_nodes_it_cannot_be_told_which_one_hangs() -> None:
    played = play(net(2), [Fault("hang", "node", ("node-1",))])
    assert played.named == []
    (doubt,) = played.end.unresolved
    assert {str(cause) for cause in doubt.may_be} >= {"node-0", "node-1", "the path between node-0 and node-1"}
    assert played.end.findings[0].verdict is Verdict.UNKNOWN


def test_two_slow_nodes_alone_have_nothing_to_be_compared_with() -> None:
    played = play(net(2), [slow(1, 0.5)])
    assert played.named == []
    assert {finding.verdict for finding in played.end.findings if finding.subject == "every node"} == {Verdict.UNKNOWN}


def test_of_three_nodes_the_one_in_both_bad_pairs_is_named() -> None:
    assert play(net(3), [Fault("hang", "node", ("node-1",))]).named == ["node-1"]


@pytest.mark.parametrize("count", [4, 6, 12])
def test_a_small_fleet_suffices_for_one_bad_node(count: int) -> None:
    assert play(net(count), [slow(1, 0.3)]).named == ["node-1"]


def test_where_all_are_slow_nobody_is_accused_and_a_baseline_says_so() -> None:
    network, all_of_them = net(64, rack=8), [slow(node, 0.4) for node in range(64)]
    fleet = replace(known(network), expected_gbs=370.0)
    played = play_fleet(fleet, SimulatedFleet(network, CALM, seeded(1), all_of_them))
    assert played.named == []
    (all_slow,) = [finding for finding in played.end.findings if finding.subject == "every node"]
    assert all_slow.verdict is Verdict.FAIL
    assert "all are slow" in all_slow.message


def test_without_a_baseline_it_is_said_that_all_may_be_slow() -> None:
    (finding,) = [f for f in play(net(64, rack=8)).end.findings if f.subject == "every node"]
    assert "all of them may be slow" in finding.message


def test_where_most_runs_fail_it_is_not_the_nodes() -> None:
    played = play(net(32), [Fault("crash", "node", (f"node-{node}",)) for node in range(32)])
    assert played.named == []
    assert played.sizes == [16]
    assert "more than single nodes can explain" in played.end.unresolved[0].why


def test_two_speeds_without_known_racks_accuse_nobody() -> None:
    network = net(96, rack=6, across=0.7)
    order = tuple(sorted(network.nodes, key=lambda node: (int(node[5:]) * 5) % 96))
    fleet = Fleet(order)
    played = play_fleet(fleet, SimulatedFleet(network, CALM, seeded(1)))
    assert played.named == []


def test_two_speeds_do_not_keep_a_node_that_vanished_from_being_named() -> None:
    network = net(100, rack=5, across=0.7)
    played = play_fleet(
        Fleet(network.nodes), SimulatedFleet(network, CALM, seeded(1), [Fault("vanish", "node", ("node-7",))])
    )
    assert played.named == ["node-7"]
    assert "two speeds" in played.end.unresolved[0].why


def test_a_slow_run_that_does_not_come_back_accuses_nobody() -> None:
    class OneGust(SimulatedFleet):
        def _shows(self, fault: Fault) -> bool:
            return len(self.rounds) == 1

    network = net(64, rack=8)
    played = play_fleet(known(network), OneGust(network, CALM, seeded(1), [slow(13, 0.3)]))
    assert played.named == []
    assert len(played.end.chance) == 1
    assert played.end.unresolved == ()


def test_what_only_fails_together_is_said_and_laid_on_nobody() -> None:
    class TooLarge(SimulatedFleet):
        def _shows(self, fault: Fault) -> bool:
            return len(self.rounds[-1][0].nodes) > 2

    network = net(16)
    simulated = TooLarge(network, CALM, seeded(1), [Fault("crash", "node", ("node-3",))])
    played = play_fleet(known(network), simulated)
    assert played.named == []
    (finding,) = [f for f in played.end.findings if f.verdict is Verdict.FAIL]
    assert "a fault is left that pairs do not show" in finding.message


def test_what_stayed_in_the_cluster_after_a_run_is_a_finding_of_its_own() -> None:
    class Stays(SimulatedFleet):
        def run(self, *given: Any, **named: Any) -> list[LaunchResult]:
            return [replace(ended, left="not removed: no answer") for ended in super().run(*given, **named)]

    network = net(8)
    played = play_fleet(known(network), Stays(network, CALM, seeded(1)))
    (left,) = [finding for finding in played.end.findings if finding.check == "left-over"]
    assert (left.verdict, left.numbers["launches"]) == (Verdict.UNKNOWN, len(played.history))
    assert played.named == []
