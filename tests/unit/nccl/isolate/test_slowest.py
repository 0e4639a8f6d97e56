"""A node is no better off for being slower than any other cause would make it."""

from __future__ import annotations

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.isolate.confirmation import REPEATS
from tests.rig.nccl.simulated import net, play, slow
from tests.rig.nccl_fleet.faults import Fault


@pytest.mark.parametrize("count", [4, 6, 16, 64, 256])
@pytest.mark.parametrize("left", [0.05, 0.006, 0.003, 0.0005, 1e-6])
def test_the_slower_a_node_is_the_surer_it_is_named(count: int, left: float) -> None:
    assert play(net(count), [slow(1, 1 - left)]).named == ["node-1"]


@pytest.mark.parametrize("left", [0.05, 0.003])
def test_so_it_is_with_racks_and_with_a_second_node_that_is_slow_too(left: float) -> None:
    played = play(net(32, rack=8), [slow(3, 1 - left), slow(20, 1 - left)])
    assert sorted(played.named) == ["node-20", "node-3"]


def test_two_racks_that_are_joined_slowly_are_not_ok_nor_is_anybody_accused() -> None:
    slowly, well = (play(net(8, rack=4, across=across)) for across in (0.52, 0.97))
    assert slowly.named == well.named == []
    told = {finding.subject: finding for finding in slowly.end.findings}["between the racks"]
    assert (told.verdict, "across the two racks" in told.message) == (Verdict.UNKNOWN, True)
    assert "between the racks" not in {finding.subject for finding in well.end.findings}


@pytest.mark.parametrize(("count", "bad"), [(32, 30), (12, 10), (12, 11)])
def test_a_slow_node_in_the_only_pair_across_racks_is_named(count: int, bad: int) -> None:
    rack = 31 if count == 32 else 7  # an odd number in each of the two: one pair across
    played = play(net(count, rack=rack), [slow(bad, 0.5)])
    assert played.named == [f"node-{bad}"]


def test_where_the_only_pair_across_racks_is_slow_by_the_way_nobody_is_accused() -> None:
    played = play(net(12, rack=7, across=0.52))
    assert played.named == []
    assert "between the racks" in {finding.subject for finding in played.end.findings if finding.verdict != "OK"}
    assert played.sizes == [6, 2, *[1] * REPEATS]


@pytest.mark.parametrize(("kind", "words"), [("corrupt", "Xid errors, ECC"), ("hang", "kernel log")])
def test_what_to_do_fits_how_the_runs_ended(kind: str, words: str) -> None:
    played = play(net(8), [Fault(kind, "node", ("node-2",))])
    (told,) = [finding for finding in played.end.findings if finding.subject == "node-2"]
    assert words in told.hint
    assert "cable" not in told.hint
