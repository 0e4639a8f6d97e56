"""Simulated fleets in which a healthy node was accused once: by runs that another fault explains, or by wide noise."""

from __future__ import annotations

import pytest

from bench.nccl_scorecard import Case, cases, healthy, play

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
