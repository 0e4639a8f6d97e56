"""Sudden drops are told from noise, protocol changes and disturbances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.context import RunContext
from tests.rig.nccl.judged import GIB, HEALTHY, LOGS, found, recorded, row, run, verdicts

MIB = 1 << 20
FELL = ["rocm_mi350x_8g_collapsed_ws.log", "mi350x_8g_collapsed.log"]
QUIET = sorted(set(LOGS) - set(FELL))


@pytest.mark.parametrize("name", QUIET)
def test_no_recorded_run_is_accused_of_a_drop_for_noise_or_a_change_of_protocol(name: str) -> None:
    assert verdicts(recorded(name), "drop", RunContext()) <= {Verdict.OK}


@pytest.mark.parametrize(
    ("name", "sizes", "before", "left"),
    [
        ("mi350x_8g_collapsed.log", ["64 MiB", "1 GiB"], 261.21, 124.09),
        ("rocm_mi350x_8g_collapsed_ws.log", ["64 MiB", "256 MiB", "2 GiB"], 230.19, 111.92),
    ],
)
def test_a_fall_in_one_half_of_the_rows_is_a_disturbance_to_look_at(
    name: str, sizes: list[str], before: float, left: float
) -> None:
    fell = found(recorded(name), "drop", RunContext())
    assert {finding.verdict for finding in fell} == {Verdict.WARN}
    assert [finding.subject for finding in fell] == sizes
    assert fell[0].numbers["best_before_gbs"] == before
    assert fell[0].numbers["left_gbs"] == left


def test_a_fall_that_stays_in_both_halves_fails_once_and_names_its_span() -> None:
    # nccl#1453: 29.5 GB/s at 32 MiB, 5.3 and less above
    sick = {8 * MIB: 16.2, 16 * MIB: 24.1, 32 * MIB: 29.5, 64 * MIB: 5.27, 128 * MIB: 5.3, 256 * MIB: 4.23}
    (fell,) = found(run(sick, nodes=2), "drop")
    assert fell.verdict is Verdict.FAIL
    assert fell.subject == "64 MiB to 256 MiB"
    assert "from 29.5 to 4.23 GB/s" in fell.message
    assert "does not recover" in fell.message
    assert fell.hint


def test_one_deep_hole_fails_and_what_stands_after_it_does_not_hide_it() -> None:
    holed = run({1 * GIB: 331, 2 * GIB: 350, 4 * GIB: 140, 8 * GIB: 366})
    (fell,) = found(holed, "drop")
    assert (fell.verdict, fell.subject) == (Verdict.FAIL, "4 GiB")


def test_holes_where_bandwidth_has_not_grown_yet_are_noise() -> None:
    noisy = run({1024: 0.1, 4096: 0.9, 16384: 0.3, 1 * GIB: 331, 4 * GIB: 360})
    assert verdicts(noisy, "drop") == {Verdict.OK}


def test_rows_with_one_half_alone_can_still_fall() -> None:
    rows = tuple(replace(row(size, speed), in_place=None) for size, speed in ((GIB, 300.0), (2 * GIB, 100.0)))
    assert verdicts(replace(HEALTHY, rows=rows), "drop") == {Verdict.FAIL}


def test_types_and_operations_are_not_compared_with_each_other() -> None:
    given = run({GIB << i: speed for i, speed in enumerate((300.0, 310.0, 315.0))})
    slower = tuple(replace(row(one.size_bytes, 150.0), redop="prod") for one in given.rows)
    assert verdicts(replace(given, rows=given.rows + slower), "drop") == {Verdict.OK}
    fallen = replace(row(4 * GIB, 20.0), redop="prod")
    assert verdicts(replace(given, rows=(*given.rows, *slower[:2], fallen)), "drop") == {Verdict.FAIL}


def test_one_size_alone_says_nothing_of_drops() -> None:
    assert not found(run({8 * GIB: 366}), "drop")


def test_only_sizes_that_were_compared_are_vouched_for() -> None:
    (fine,) = found(run({8: 0.01, 1 << 20: 20.0, 1 * GIB: 331.0, 4 * GIB: 364.9, 8 * GIB: 367.2}), "drop")
    assert "the 3 sizes that are large enough to judge, 1 GiB to 8 GiB" in fine.message
    assert found(recorded("gb200_excerpt.log"), "drop") == [], "16 GiB alone has nothing to fall from"
