"""Line-rate arithmetic, on numbers that others measured and worked out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from gpuctl.nccl import bandwidth
from gpuctl.nccl.model import Row, Timing
from tests.rig.nccl.judged import GIB, recorded, row


def test_a_hierarchical_run_on_b200_fills_three_quarters_of_an_adapter() -> None:
    assert bandwidth.accelerator_rate(381.8, nodes=4, ranks=32) == pytest.approx(36.95, abs=0.01)


def test_a_ring_on_p5en_fills_nine_tenths_of_the_line() -> None:
    assert bandwidth.ring_share(364.9, 400) == pytest.approx(0.91, abs=0.005)


@pytest.mark.parametrize("log", ["a100_8g_{}_old_unchecked.log", "sb_a100_8gpu_{}.log"])
def test_factors_are_those_of_recorded_runs(log: str) -> None:
    for name in ("allreduce", "allgather", "alltoall", "broadcast", "reduce", "reducescatter"):
        run = recorded(log.format(name))
        collective = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
        half = run.rows[-1].out_of_place
        factor = bandwidth.bus_factor(collective.get(name, name), 8)
        assert half is not None
        assert half.busbw_gbs / half.algbw_gbs == pytest.approx(factor, rel=1e-3), name


def test_a_collective_without_a_known_factor_has_none() -> None:
    assert bandwidth.bus_factor("gather", 8) is None


@pytest.mark.parametrize("name", ["h200_16n128g_excerpt.log", "aws_p5en_slurm_excerpt.log"])
def test_the_ranks_of_an_excerpt_without_devices_follow_from_one_row(name: str) -> None:
    (last,) = [row for row in recorded(name).rows if row.size_bytes > GIB]
    assert bandwidth.ranks_by_factor("all_reduce", last) == 128


@settings(deadline=None)
@given(some.integers(2, 64), some.floats(50, 500))
def test_ranks_by_factor_are_the_right_number_or_none(ranks: int, busbw: float) -> None:
    assert bandwidth.ranks_by_factor("all_reduce", row(8 * GIB, busbw, ranks=ranks)) in (ranks, None)


def test_small_or_empty_rows_tell_no_ranks() -> None:
    half = Timing(0.02, 0.0, 0.0, 0)
    assert bandwidth.ranks_by_factor("all_reduce", Row(0, 0, "float", "sum", -1, half, half)) is None
    assert bandwidth.ranks_by_factor("all_reduce", row(8, 0.01)) is None
    odd = Timing(32.5, 30.0, 56.4, 0)  # of a log that was damaged: nothing was sent, and quickly
    assert bandwidth.ranks_by_factor("all_reduce", Row(0, 0, "float", "sum", -1, odd, odd)) is None
    assert bandwidth.ranks_by_factor("broadcast", row(8 * GIB, 300)) is None


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather", "alltoall"])
def test_the_ranks_of_every_collective_whose_factor_depends_on_them_are_found(collective: str) -> None:
    factor = bandwidth.bus_factor(collective, 24)
    assert factor is not None
    half = Timing(8 * GIB / (300 / factor * 1e3), round(300 / factor, 2), 300.0, 0)
    assert bandwidth.ranks_by_factor(collective, Row(8 * GIB, 2 * GIB, "float", None, -1, half, half)) == 24
    assert bandwidth.ranks_by_factor("gather", Row(8 * GIB, 2 * GIB, "float", None, -1, half, half)) is None
