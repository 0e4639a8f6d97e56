"""A fabric that becomes slower or faster during an isolation: each round is compared with control pairs of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.drift import PairRun, drift
from gpuctl.nccl.isolate.model import Fleet
from tests.rig.nccl.simulated import CALM, Played, net, play_fleet, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet

GUST = Fault("slow", "node", ("node-7",), 0.2, times=1)  # one slow run, so that its nodes are tested again


def changing(fault: Fault, factor: float, first: int, known: bool = True) -> Played:
    """64 nodes whose fabric has another speed from a round on."""
    network = net(64, rack=8 if known else 0)
    simulated = SimulatedFleet(network, CALM, seeded(1), [fault], drift=[1.0] * (first - 1) + [factor])
    return play_fleet(Fleet(network.nodes, network.rack_of if known else {}), simulated)


@pytest.mark.parametrize("first", [2, 3])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("factor", [0.92, 0.94])
def test_a_slower_fabric_accuses_no_healthy_node(factor: float, known: bool, first: int) -> None:
    assert changing(GUST, factor, first, known).named == []


@pytest.mark.parametrize("first", [2, 3])
@pytest.mark.parametrize("factor", [0.92, 1.07, 1.12])
def test_a_slow_node_is_named_while_the_fabric_changes(factor: float, first: int) -> None:
    assert changing(slow(7, 0.1), factor, first).named == ["node-7"]


@pytest.mark.parametrize("drift", [(1.0, 0.9, 1.05, 0.95), (1.0, 0.93, 1.0, 0.95, 1.05, 0.97)])
@pytest.mark.parametrize("nodes", [12, 16])
def test_a_fabric_that_changes_from_round_to_round_accuses_no_node_of_a_small_fleet(
    nodes: int, drift: tuple[float, ...]
) -> None:
    # The runs of all nodes differ, so that every node is run in more pairs, in rounds of other speeds.
    network = net(nodes, rack=8)
    for seed in range(4):
        played = play_fleet(
            Fleet(network.nodes, network.rack_of), SimulatedFleet(network, CALM, seeded(seed), drift=drift)
        )
        assert played.named == []
        assert len(played.simulated.rounds) <= 12


def test_controls_are_reported_beside_the_budget() -> None:
    end = changing(slow(7, 0.1), 0.92, 2).end
    assert (end.controls, end.used <= end.budget) == (3, True)
    assert "3 more of good pairs beside them, as controls" in end.findings[-1].message


def few(count: int, bad: int, factor: float, seed: int, share: float = 0.1) -> Played:
    """A small fleet, of which every pair is run, and whose fabric has another speed from the second round on."""
    nodes = seeded(seed).sample(range(count), bad)
    faults = [slow(node, share) for node in nodes]
    simulated = SimulatedFleet(net(count), CALM, seeded(seed), faults, drift=[1.0, factor])
    return play_fleet(Fleet(simulated.network.nodes, {}, ()), simulated)


@pytest.mark.parametrize("factor", [0.93, 1.07])
@pytest.mark.parametrize("count", [6, 8])
def test_a_small_healthy_fleet_stays_healthy_while_the_fabric_changes(count: int, factor: float) -> None:
    for seed in range(3):
        played = few(count, 0, factor, seed)
        assert played.named == []
        assert {finding.verdict for finding in played.end.findings} == {Verdict.OK}


@pytest.mark.parametrize(("count", "bad", "factor"), [(6, 1, 0.93), (8, 1, 1.08), (8, 3, 0.93), (16, 3, 1.07)])
def test_the_bad_nodes_of_a_small_fleet_are_named_while_the_fabric_changes(count: int, bad: int, factor: float) -> None:
    for seed in range(3):
        played = few(count, bad, factor, seed)
        assert sorted(played.named) == sorted(f"node-{node}" for node in seeded(seed).sample(range(count), bad))


def test_one_disturbed_control_makes_no_other_run_look_faster() -> None:
    first = runs(0, ("ab", 370.0), ("cd", 371.0), ("ef", 369.0))
    changes = drift([first, runs(3, ("ab", 290.0), ("ce", 370.0))]).changes
    assert all(change < 0.02 for change in changes.values())


def runs(first: int, *speeds: tuple[str, float | None]) -> list[PairRun]:
    """A round: pairs of letters with their GB/s."""
    return [PairRun(first + n, frozenset(pair), "", gbs) for n, (pair, gbs) in enumerate(speeds)]


def test_of_two_controls_that_differ_the_faster_one_counts() -> None:
    first = runs(0, ("ab", 370.0), ("cd", 371.0), ("ef", 369.0))
    assert not drift([first, runs(3, ("ab", 330.0), ("cd", 371.0), ("eg", 331.0))]).changes


def test_pairs_within_racks_that_ran_slower_than_those_across_are_no_controls() -> None:
    first = [*placed(0, "within", ("ab", 297.0), ("ef", 296.0)), *placed(2, "across", ("cd", 371.0), ("gh", 368.0))]
    later = placed(4, "within", ("ab", 369.0), ("ef", 371.0))
    assert not drift([first, later]).changes


def placed(first: int, place: str, *speeds: tuple[str, float | None]) -> list[PairRun]:
    """As `runs`, of one place."""
    return [replace(run, place=place) for run in runs(first, *speeds)]


def test_the_change_is_measured_by_good_pairs_that_ran_before() -> None:
    first = runs(0, ("ab", 370.0), ("cd", 371.0), ("ef", 369.0), ("gh", 300.0))
    later = runs(4, ("ga", 340.0), ("hb", 275.0), ("cd", 341.3), ("ef", 339.5))
    result = drift([first, later])
    assert result.controls == {6, 7}
    assert set(result.changes) == {4, 5, 6, 7}
    assert result.changes[4] == pytest.approx(math.log(1 / 0.92), abs=0.002)


def test_a_suspect_pair_that_recovers_is_no_control() -> None:
    first = runs(0, ("ab", 370.0), ("cd", 371.0), ("ef", 300.0))
    assert drift([first, runs(3, ("ef", 370.0))]).controls == frozenset()


def test_usual_scatter_is_no_change() -> None:
    first = runs(0, ("ab", 370.0), ("cd", 371.0), ("ef", 369.0))
    assert not drift([first, runs(3, ("ab", 368.5), ("cd", 370.0))]).changes


def test_a_failed_control_measures_nothing() -> None:
    first = runs(0, ("ab", 370.0), ("cd", 371.0))
    result = drift([first, runs(2, ("ab", None), ("cd", None))])
    assert (result.controls, dict(result.changes)) == (frozenset(), {})
