"""Rounds of all nodes with other partners: no pair runs again but those that were chosen to show the fabric's speed."""

from __future__ import annotations

import pytest

from gpuctl.nccl.isolate import pairing
from gpuctl.nccl.isolate.controls import repeated
from gpuctl.nccl.isolate.model import Fleet, Policy
from gpuctl.nccl.isolate.next_round import _unpaired
from gpuctl.nccl.isolate.observations import observe
from gpuctl.nccl.model import LaunchResult
from tests.rig.nccl.simulated import CALM, net, seeded, slow
from tests.rig.nccl_fleet.runner import SimulatedFleet


def again_in(count: int, rack: int, bad: int) -> list[frozenset[str]]:
    """The pairs that run again in three rounds with other partners, but those that show the speed of the fabric."""
    network = net(count, rack=rack)
    fleet = Fleet(network.nodes, network.rack_of if rack else {}, ())
    simulated = SimulatedFleet(network, CALM, seeded(bad), [slow(bad, 0.2)])
    history: list[LaunchResult] = []
    met: set[frozenset[str]] = set()
    repeats: list[frozenset[str]] = []
    for turn in range(4):
        evidence = observe(fleet, history)
        step = _unpaired(evidence, Policy(), turn + 1)
        assert step is not None
        chosen = {frozenset(pair) for pair in repeated(evidence.alive, turn, evidence)} if turn else set()
        pairs = {frozenset(launch.nodes) for launch in step.launches}
        repeats += (pairs - chosen) & met
        met |= pairs
        history += simulated.run(step.launches, lambda *_: None, lambda: False)
    return repeats


@pytest.mark.parametrize("count", [10, 12, 16, 24, 30])
def test_nodes_meet_others_although_some_pairs_are_repeated(count: int) -> None:
    assert [again_in(count, 0, bad) for bad in range(0, count, 5)] == [[]] * len(range(0, count, 5))


def test_a_suspect_in_a_rack_runs_with_its_partner_again_only_where_no_other_is_left() -> None:
    again = [f"node-{bad}" in pair for bad in range(24) for pair in again_in(24, 8, bad)]
    assert sum(again) <= 4  # 23 before partners were exchanged


def test_partners_are_exchanged_within_what_racks_allow() -> None:
    racks = {node: node[0] for node in ("a1", "a2", "a3", "b1", "b2", "b3")}
    met = {frozenset(("a1", "a2"))}
    pairs = pairing.strangers([("a1", "a2"), ("b1", "b2"), ("a3", "b3")], met, racks)
    assert pairs == [("a1", "a3"), ("b1", "b2"), ("b3", "a2")]
    assert pairing.strangers([("a1", "a2"), ("b1", "b2")], met, racks) == [("a1", "a2"), ("b1", "b2")]
