"""Several bad nodes of a few are named where every pair shows it; else both speeds are told, and never OK."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.confirmation import REPEATS
from gpuctl.nccl.isolate.model import Fleet
from gpuctl.nccl.isolate.noise import reference
from gpuctl.nccl.isolate.observations import observe
from gpuctl.nccl.isolate.speed_clusters import cluster_speeds
from tests.rig.nccl.simulated import Played, net, play, play_fleet, seeded, slow
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.nccl_fleet.scatter import Scatter

NOISE = Scatter("laplace", 0.007, 0.0)  # 1 % standard deviation
FEWER_FROM = 8  # the runs of every pair grow with the square of the nodes
NAMED = [(3, 1), (4, 1), (4, 2), (5, 2), (6, 2), (6, 3), (8, 3), (8, 4), (12, 3), (12, 4), (16, 4), (16, 5)]
MOST_ARE_BAD = [(5, 3), (6, 4), (7, 4), (8, 5), (12, 8), (16, 10)]
SHARES = [0.2, 0.55]


def some_bad(count: int, bad: int, share: float, seed: int, expected: float | None = None) -> tuple[Played, list[str]]:
    """Isolated without known racks; the bad ones are chosen by the seed."""
    random, network = seeded(1000 * seed + 10 * count + bad), net(count)
    chosen = sorted(random.sample(range(count), bad))
    simulated = SimulatedFleet(network, NOISE, random, [slow(node, share) for node in chosen])
    played = play_fleet(Fleet(network.nodes, {}, (), expected), simulated)
    return played, [f"node-{node}" for node in chosen]


def seeds(count: int) -> range:
    """The fleets of one test: four small ones, fewer of those with more nodes."""
    return range(max(1, 4 * FEWER_FROM // max(FEWER_FROM, count)))


def verdicts(played: Played) -> set[Verdict]:
    return {finding.verdict for finding in played.end.findings if finding.check == "isolate"}


def widest(played: Played) -> float:
    """The largest difference among the pairs of one class, as a natural logarithm."""
    speeds = defaultdict(list)
    for seen in observe(played.fleet, played.history).pairs:
        if seen.gbs:
            speeds[seen.place].append(math.log(seen.gbs))
    return max(max(each) - min(each) for each in speeds.values())


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("count", "bad"), NAMED)
def test_up_to_half_of_a_few_nodes_are_named_and_no_other(count: int, bad: int, share: float) -> None:
    for seed in seeds(count):
        played, truly = some_bad(count, bad, share, seed)
        assert sorted(played.named) == sorted(truly)
        assert Verdict.FAIL in verdicts(played)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("count", "bad"), MOST_ARE_BAD)
def test_where_most_are_bad_nobody_is_accused_and_two_speeds_never_pass_for_ok(
    count: int, bad: int, share: float
) -> None:
    for seed in seeds(count):
        played, _ = some_bad(count, bad, share, seed)
        assert played.named == []
        assert Verdict.UNKNOWN in verdicts(played) or widest(played) < 0.12


def test_it_is_told_who_is_in_question_with_both_speeds() -> None:
    played, truly = some_bad(8, 5, 0.55, 1)
    (doubt,) = played.end.unresolved
    good = [node for node in played.fleet.nodes if node not in truly]
    assert f"among {', '.join(good)}" in doubt.why
    assert f"with {', '.join(truly)}" in doubt.why


def test_a_baseline_tells_which_speed_is_the_right_one() -> None:
    for seed in seeds(8):
        played, truly = some_bad(8, 5, 0.55, seed, expected=370.0)
        assert sorted(played.named) == truly
        assert not any("all are slow" in finding.message for finding in played.end.findings)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_of_three_nodes_the_bad_one_is_named_even_as_the_partner_of_the_odd_one(bad: int) -> None:
    assert play(net(3), [slow(bad, 0.3)]).named == [f"node-{bad}"]


@pytest.mark.parametrize("count", [4, 6, 8, 10, 12, 16])
def test_two_racks_nobody_told_us_of_accuse_nobody(count: int) -> None:
    for seed in seeds(count):
        network, random = net(count, count // 2, across=0.75), seeded(seed)
        nodes = random.sample(network.nodes, count)
        played = play_fleet(Fleet(tuple(nodes), {}, ()), SimulatedFleet(network, NOISE, random))
        assert played.named == []
        assert Verdict.UNKNOWN in verdicts(played) or widest(played) < 0.12


@pytest.mark.parametrize(("count", "bad"), [(8, 3), (12, 3), (12, 4)])
def test_several_bad_nodes_of_a_small_rack_are_not_laid_on_the_rack(count: int, bad: int) -> None:
    for seed in seeds(count):
        random, network = seeded(seed), net(count, 4, across=0.85)
        chosen = random.sample(range(count), bad)
        simulated = SimulatedFleet(network, NOISE, random, [slow(node, 0.3) for node in chosen])
        played = play_fleet(Fleet(network.nodes, network.rack_of, ()), simulated)
        assert played.named
        assert set(played.named) <= {f"node-{node}" for node in chosen}


def test_a_healthy_fleet_of_few_runs_every_pair_and_one_of_more_does_not() -> None:
    six = play(net(6))
    assert sum(six.sizes) - six.end.controls == 15 + REPEATS
    assert play(net(16)).sizes == [8, *[1] * REPEATS]


def test_one_bad_node_of_a_few_stays_within_the_budget() -> None:
    played = play(net(8), [slow(3, 0.3)])
    assert played.named == ["node-3"]
    assert played.end.used <= played.end.budget


def test_slower_together_than_pairs_promise_is_not_passed_over() -> None:
    class Together(SimulatedFleet):
        def _shows(self, fault: object) -> bool:
            return len(self.rounds[-1][0].nodes) > 2

    network = net(16)
    played = play_fleet(Fleet(network.nodes), Together(network, NOISE, seeded(1), [slow(3, 0.5)]))
    assert played.named == []
    assert Verdict.UNKNOWN in verdicts(played)


def test_nodes_are_set_apart_the_slowest_first_and_only_where_every_pair_was_run() -> None:
    shares = {"d": 0.8, "e": 0.45, "f": 0.45}
    speeds = {pair: 400 * min(shares.get(node, 1.0) for node in pair) for pair in combinations("abcdef", 2)}
    assert cluster_speeds([speeds]).slow_nodes == {"d", "e", "f"}
    assert cluster_speeds([dict(list(speeds.items())[1:])]).slow_nodes == frozenset()


def test_the_reference_of_many_runs_is_that_of_healthy_ones_though_most_are_slow() -> None:
    found = reference([370.0, 371, 369, 372, 370, 368, 371, 370] + [200.0 + n for n in range(12)])
    assert found is not None
    assert 368 <= found.gbs <= 372
    assert found.scale < 0.01
