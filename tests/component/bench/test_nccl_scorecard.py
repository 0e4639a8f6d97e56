"""Fleets of the scorecard in which a healthy node was accused once: nobody healthy is, and something is not OK."""

from __future__ import annotations

from bench.nccl_scorecard import cases, play


def test_a_pair_of_the_slower_of_two_speeds_clears_no_node_where_many_are_slow() -> None:
    """Runs across racks mostly had a slow node, so that slow ones looked usual there, and cleared bad partners."""
    (case,) = [case for case in cases() if case.name == "24 of 64 slow by 6 %, racks known"]
    result = play((case, "november-28 6"))
    assert (result.accused, result.exit_1) == ((), True)
