"""Fleets with many bad nodes: all of them are named, or nobody is and the result is not OK."""

from __future__ import annotations

from itertools import combinations

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.model import Fleet, Policy
from gpuctl.nccl.isolate.pair_outliers import similar
from gpuctl.nccl.isolate.speed_clusters import chance_of_pattern, cluster_speeds
from gpuctl.nccl.model import Launch
from tests.rig.nccl.simulated import Played, net, play_fleet, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.nccl_fleet.scatter import Scatter

NOISE = Scatter("laplace", 0.0035, 0.0)  # 0.5 % standard deviation


def fleet(count: int, faults: list[Fault], rack: int = 0, seed: int = 1) -> Played:
    """An isolation; racks are known if their size is given."""
    network = net(count, rack=rack)
    simulated = SimulatedFleet(network, NOISE, seeded(seed), faults)
    return play_fleet(Fleet(network.nodes, network.rack_of if rack else {}, ()), simulated)


def chosen(count: int, bad: int, seed: int) -> list[int]:
    return sorted(seeded(seed).sample(range(count), bad))


def is_open(played: Played) -> bool:
    """True if the command exits with 1."""
    return any(finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN) for finding in played.end.findings)


@pytest.mark.parametrize("share", [0.08, 0.1])
@pytest.mark.parametrize(("count", "bad"), [(6, 2), (6, 3), (8, 4), (10, 3), (12, 4), (16, 5)])
def test_several_slow_nodes_of_a_few_are_named(count: int, bad: int, share: float) -> None:
    nodes = chosen(count, bad, seed=count)
    played = fleet(count, [slow(node, share) for node in nodes])
    assert sorted(played.named) == sorted(f"node-{node}" for node in nodes)


@pytest.mark.parametrize(("count", "bad"), [(6, 2), (6, 3), (8, 4), (16, 5)])
def test_the_rule_over_every_pair_names_them_too(count: int, bad: int) -> None:
    nodes = {f"node-{node}" for node in chosen(count, bad, seed=count)}
    simulated = SimulatedFleet(net(count), NOISE, seeded(2), [Fault("slow", "node", (name,), 0.08) for name in nodes])
    launches = [Launch(pair, Policy().sweep) for pair in combinations(simulated.network.nodes, 2)]
    results = [end for launch in launches for end in simulated.run([launch], lambda *_: None, lambda: False)]
    assert {finding.subject for finding in similar(results) if finding.verdict is Verdict.FAIL} == nodes


@pytest.mark.parametrize("rack", [0, 8])
@pytest.mark.parametrize("share", [0.06, 0.08, 0.1])
@pytest.mark.parametrize("bad", [24, 32, 40])
def test_about_half_of_a_fleet_slow_is_never_ok_and_no_healthy_part_is_accused(
    bad: int, share: float, rack: int
) -> None:
    for seed in range(3):
        nodes = chosen(64, bad, seed)
        played = fleet(64, [slow(node, share) for node in nodes], rack, seed)
        assert is_open(played)
        assert set(played.named) <= {f"node-{node}" for node in nodes}


@pytest.mark.parametrize("rack", [0, 8])
@pytest.mark.parametrize("seed", range(3))
def test_an_eighth_of_a_fleet_is_named_and_no_rack_or_uplink(rack: int, seed: int) -> None:
    nodes = chosen(64, 8, seed)
    played = fleet(64, [slow(node, 0.2) for node in nodes], rack, seed)
    assert sorted(played.named) == sorted(f"node-{node}" for node in nodes)


@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_of_a_fleet_is_named_where_racks_are_not_known(seed: int) -> None:
    nodes = chosen(64, 13, seed)
    played = fleet(64, [slow(node, 0.2) for node in nodes], 0, seed)
    assert sorted(played.named) == sorted(f"node-{node}" for node in nodes)
    assert len(played.history) <= 3 * 64


def test_many_bad_nodes_are_no_uplink_that_comes_and_goes() -> None:
    rack = [40, 41, 42, 43, 44, 46, 47]
    for seed in range(3):
        nodes = {*rack, *chosen(64, 24, seed)}
        played = fleet(64, [slow(node, 0.1) for node in nodes], 8, seed)
        assert set(played.named) <= {f"node-{node}" for node in nodes}


@pytest.mark.parametrize("rack", [0, 4])
@pytest.mark.parametrize("seed", range(4))
def test_wrong_values_beside_a_node_that_hangs_are_held_against_no_healthy_one(seed: int, rack: int) -> None:
    wrong, hung = (f"node-{node}" for node in seeded(seed).sample(range(12), 2))
    for chance in (1.0, 0.5):
        faults = [Fault("corrupt", "node", (wrong,), chance=chance), Fault("hang", "node", (hung,))]
        played = fleet(12, faults, rack, seed)
        assert set(played.named) <= {wrong, hung}
        subjects = [f.subject for f in played.end.findings if f.verdict is Verdict.FAIL]
        seen = any(end.run.outcome == "corrupt" and len(end.launch.nodes) == 2 for end in played.history)
        assert not seen or any(wrong in subject for subject in subjects)


@pytest.mark.parametrize("seed", range(4))
def test_several_bad_nodes_in_one_rack_are_no_bad_rack(seed: int) -> None:
    nodes = [1, 4, 5, 6, *chosen(64, 9, seed)]
    played = fleet(64, [slow(node, 0.2) for node in set(nodes)], 8, seed)
    assert sorted(played.named) == sorted(f"node-{node}" for node in set(nodes))


@pytest.mark.parametrize("kind", ["hang", "crash"])
@pytest.mark.parametrize("rack", [0, 4])
@pytest.mark.parametrize("bad", [5, 7, 8, 11])
def test_where_many_of_a_few_nodes_fail_no_healthy_one_is_accused(bad: int, rack: int, kind: str) -> None:
    for seed in range(4):
        nodes = {f"node-{node}" for node in chosen(12, bad, seed)}
        played = fleet(12, [Fault(kind, "node", (name,)) for name in sorted(nodes)], rack, seed)
        assert is_open(played)
        assert set(played.named) <= nodes


@pytest.mark.parametrize("rack", [0, 8])
def test_a_run_that_failed_once_is_repeated_with_the_same_pair(rack: int) -> None:
    played = fleet(64, [Fault("hang", "node", ("node-9",), times=1)], rack)
    failed = next(end.launch.nodes for end in played.history if end.run.rows == ())
    same = sum(set(end.launch.nodes) == set(failed) for end in played.history)
    assert same >= 4
    assert played.named == []


def test_most_nodes_that_fail_in_half_of_their_runs_are_noticed() -> None:
    played = [fleet(64, [Fault("hang", "node", ("node-9",), chance=0.5)], 8, seed) for seed in range(12)]
    assert sum(one.named == ["node-9"] for one in played) >= 5
    assert sum(is_open(one) for one in played) >= 7
    assert not [name for one in played for name in one.named if "node-9" not in name]


def test_the_chance_of_a_pattern_counts_the_ways_to_choose_the_fast_pairs() -> None:
    # 15 pairs of six nodes: any 6 of them may be the fast ones, and 15 sets of four nodes have six pairs.
    assert chance_of_pattern([["a", "b", "c", "d"], ["e"], ["f"]]) == pytest.approx(15 / 5005)
    assert chance_of_pattern([["a", "b"], ["c"], ["d"]]) == 1.0


def test_a_small_gap_separates_two_speeds_only_if_the_pattern_is_unlikely() -> None:
    four = dict.fromkeys(combinations("abcd", 2), 340.0) | {("a", "b"): 370.0}
    assert cluster_speeds([four]).slow_nodes == frozenset()
    six = {pair: 340.0 if {"e", "f"} & set(pair) else 370.0 for pair in combinations("abcdef", 2)}
    assert cluster_speeds([six]).slow_nodes == {"e", "f"}
