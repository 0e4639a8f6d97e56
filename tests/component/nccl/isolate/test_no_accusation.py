"""Simulated fleets in which a healthy node was accused once: by runs that another fault explains, or by wide noise."""

from __future__ import annotations

import pytest

from bench import nccl_flapping
from bench.nccl_scorecard import Case, cases, half, healthy, play, rough

MIXED = {case.name: case for case in cases() if case.group == "mixed"}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("corrupt in 50 % beside hang: 12 nodes, racks not known", 149),
        ("corrupt in 50 % beside hang: 12 nodes, racks not known", 198),
        ("corrupt in 50 % beside crash: 6 nodes, racks not known", 95),
        ("corrupt in 50 % beside crash: 6 nodes, racks not known", 239),
        ("corrupt in 50 % beside crash: 12 nodes, racks not known", 193),
    ],
)
def test_the_partner_of_a_dead_node_is_not_accused_of_wrong_values(name: str, seed: int) -> None:
    result = play((MIXED[name], f"lookfor {seed}"))
    assert result.accused == ()
    assert result.exit_1  # the pair with the wrong values stays FAIL


@pytest.mark.parametrize(
    ("nodes", "seed"), [(3, 24), (3, 38), (3, 54), (4, 30), (4, 57), (5, 5), (5, 25), (6, 8), (6, 77)]
)
def test_a_small_fleet_is_judged_by_the_spread_of_its_repeated_runs(nodes: int, seed: int) -> None:
    case = Case(f"h{nodes} 0.03", healthy((nodes,), noise=0.03), "none accused", group="healthy")
    assert play((case, f"z{seed}")).accused == ()


ROUGH = {case.name: case for case in rough()}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("noise 2 % (laplace), fabric 7 % faster, one slow run: 24 nodes, racks known", 3),
        ("noise 2 % (laplace), fabric 7 % faster, one slow run: 24 nodes, racks known", 12),
        ("noise 2 % (student), fabric 7 % faster, one slow run: 24 nodes, racks known", 21),
        ("noise 2 % (student), fabric 10 % slower in two steps, one slow run: 24 nodes, racks known", 32),
    ],
)
def test_rough_noise_and_a_changing_fabric_accuse_nobody(name: str, seed: int) -> None:
    assert play((ROUGH[name], f"final {seed}")).accused == ()


@pytest.mark.parametrize("seed", [7, 12])
def test_one_fast_run_of_the_first_round_does_not_make_all_others_slow(seed: int) -> None:
    case = ROUGH["noise 2 % (laplace), fabric 7 % slower, one node 20 % slow: 24 nodes, racks known"]
    assert play((case, f"final {seed}")).named


def test_a_single_fast_run_of_half_a_slow_fleet_shows_its_right_speed() -> None:
    case = next(case for case in half() if case.name == "32 of 64 slow by 10 %, racks known")
    result = play((case, "last 1"))
    assert (result.accused, result.exit_1) == ((), True)


FLAPPING = {case.name: case for case in nccl_flapping.cases()}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("2 of 8, slow in 30 % of runs, racks known", "d13b 11"),
        ("2 of 8, slow in 50 % of runs, racks known", "d13a 12"),
        ("2 of 12, slow in 50 % of runs, racks known", "d13a 93"),
        ("2 of 16, hang in 70 % of runs, racks known", "d13b 7"),
        ("2 of 12, corrupt in 50 % of runs, racks known", "d13b 6"),
        ("2 of 12, slow in 30 % of runs, racks known", "d13b 22"),
    ],
)
def test_nodes_that_come_and_go_are_held_against_no_other_node_path_or_uplink(name: str, seed: str) -> None:
    result = play((FLAPPING[name], seed))
    assert (result.accused, result.exit_1) == ((), True)
