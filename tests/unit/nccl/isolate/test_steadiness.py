"""Nodes that are fine together are run several times: what comes and goes shows there, and is found or reported."""

from __future__ import annotations

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.confirmation import REPEATS
from tests.rig.nccl.simulated import CALM, Played, known, net, play, play_fleet, seeded, slow
from tests.rig.nccl_fleet.runner import SimulatedFleet


def problems(played: Played) -> list[tuple[Verdict, str]]:
    return [(f.verdict, f.subject) for f in played.end.findings if f.verdict is not Verdict.OK]


def test_a_healthy_fleet_is_run_together_again_and_again() -> None:
    played = play(net(12))
    assert played.sizes == [6, *[1] * REPEATS]
    assert problems(played) == []
    assert played.end.used == played.end.budget == 6 + REPEATS


def test_a_node_that_is_slow_in_half_of_its_runs_is_mostly_found_though_its_first_pair_was_fast() -> None:
    played = [play(net(12), [slow(5, 0.1, 0.5)], seed=seed) for seed in range(6)]
    assert all(one.named in ([], ["node-5"]) for one in played)
    hidden = [one for one in played if one.sizes[1] == 1]
    assert len(hidden) >= 2  # its first pair was fast, so that only the runs of all nodes can show it
    assert sum(one.named == ["node-5"] for one in hidden) >= len(hidden) / 2
    assert sum(problems(one) != [] for one in played) >= 5  # in one of eight fleets all four runs are alike


def test_a_fleet_whose_runs_differ_for_no_reason_in_its_pairs_is_not_ok_and_accuses_nobody() -> None:
    network = net(12)
    simulated = SimulatedFleet(network, CALM, seeded(1), [], drift=(1.0, 1.0, 0.9, 1.0))
    played = play_fleet(known(network), simulated)
    assert played.named == []
    assert problems(played) == [(Verdict.WARN, "the 12 nodes together")]
    (finding,) = [f for f in played.end.findings if f.verdict is Verdict.WARN]
    assert "2 runs of them reach" in finding.message
    assert "and no pair shows why" in finding.message
    assert "--pairs-per-node" in finding.hint


def test_runs_that_differ_by_the_usual_noise_are_steady() -> None:
    network = net(12)
    simulated = SimulatedFleet(network, CALM, seeded(1), [], drift=(1.0, 1.0, 0.96, 1.0))
    assert problems(play_fleet(known(network), simulated)) == []
