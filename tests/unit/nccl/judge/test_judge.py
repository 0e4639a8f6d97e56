"""What holds of every judgement, whatever the run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from gpuctl.domain.findings import Verdict, overall
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.outcome import MIXED
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Run, Timing
from gpuctl.nccl.parsing import parse
from tests.rig.nccl.judged import GIB, HEALTHY, LOGS, P5EN, SHIPPED, recorded, row, run
from tests.rig.nccl.recorded import text

ORDER = list(Verdict)
SINGLE_NODE = "h100_1n8g_allreduce.log"
SHORT = settings(max_examples=50, deadline=None)
SPEEDS = some.dictionaries(
    some.sampled_from([1 << 10, 1 << 20, 1 << 26, 1 << 28, GIB, 2 * GIB, 4 * GIB, 8 * GIB, 16 * GIB]),
    some.tuples(some.floats(0.01, 500), some.floats(0.01, 500)),
    min_size=1,
)
ABOUTS = some.builds(
    RunContext,
    some.sampled_from([None, "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "p4de.24xlarge", "ours"]),
    some.sampled_from([None, 1, 2, 4, 64]),
    some.sampled_from([None, 8]),
    algorithm=some.sampled_from([None, "default", "Ring"]),
    collective=some.just("all_reduce"),
)


def of(speeds: dict[int, tuple[float, float]]) -> Run:
    return replace(HEALTHY, rows=tuple(row(size, out, inside) for size, (out, inside) in speeds.items()))


def slower(given: Run, factor: float) -> Run:
    def half(timing: Timing | None) -> Timing | None:
        return timing and replace(timing, busbw_gbs=timing.busbw_gbs * factor)

    rows = [replace(one, out_of_place=half(one.out_of_place), in_place=half(one.in_place)) for one in given.rows]
    return replace(given, rows=tuple(rows))


def rank(verdict: Verdict) -> int:
    return ORDER.index(verdict)


@SHORT
@given(SPEEDS, ABOUTS, some.sampled_from([0.5, 0.25, 0.125]))
def test_a_slower_run_is_never_judged_better(
    speeds: dict[int, tuple[float, float]], about: RunContext, factor: float
) -> None:
    # Halves, so that no rounding makes or hides a drop; ranks given, since they follow from the numbers that change.
    about = replace(about, ranks=32)
    fast, slow = (judge(one, about, SHIPPED) for one in (of(speeds), slower(of(speeds), factor)))
    # But for a ring that is faster than its wires: of that a slower run can be the more believable one.
    believed = [finding for finding in fast if finding.check != "line-rate"]
    assert rank(overall(slow)) >= rank(overall(believed))


@SHORT
@given(SPEEDS, ABOUTS, some.randoms())
def test_the_order_of_rows_ranks_and_what_they_said_is_told_and_else_of_no_matter(
    speeds: dict[int, tuple[float, float]], about: RunContext, chance: object
) -> None:
    one = of(speeds)
    other = replace(
        one,
        rows=tuple(sorted(one.rows, key=lambda _: chance.random())),  # type: ignore[attr-defined]
        ranks=tuple(reversed(one.ranks)),
        transports=tuple(reversed(one.transports)),
    )
    judged = (judge(run, about, SHIPPED) for run in (one, other))
    first, second = ([finding for finding in findings if MIXED not in finding.message] for findings in judged)
    assert first == second


@SHORT
@given(SPEEDS, ABOUTS)
def test_every_finding_that_is_not_fine_says_what_to_do_next_and_each_has_numbers(
    speeds: dict[int, tuple[float, float]], about: RunContext
) -> None:
    for finding in judge(of(speeds), about, SHIPPED):
        assert finding.numbers
        assert finding.message
        assert finding.hint or finding.verdict is Verdict.OK
        assert json.dumps(finding.as_dict())


@SHORT
@given(SPEEDS, ABOUTS, some.integers(0, 31))
def test_taking_evidence_away_never_makes_a_run_fine(
    speeds: dict[int, tuple[float, float]], about: RunContext, left: int
) -> None:
    one = of(speeds)
    silent = replace(one, transports=one.transports[:left])
    assert Verdict.OK is not overall(judge(silent, replace(about, nodes=4), SHIPPED))


@pytest.mark.parametrize("name", LOGS)
def test_a_recorded_run_without_network_lines_never_passes_on_several_nodes(name: str) -> None:
    for one in parse.runs(text(name).splitlines(keepends=True)):
        silent = replace(one, transports=())
        assert overall(judge(silent, replace(P5EN, nodes=4, gpus_per_node=8), SHIPPED)) is not Verdict.OK


@SHORT
@given(some.floats(0, 1))
def test_no_part_of_a_log_is_judged_better_than_the_whole(share: float) -> None:
    printed = text(SINGLE_NODE)
    about = RunContext("Standard_ND96isr_H100_v5")
    whole = recorded(SINGLE_NODE)
    assert overall(judge(whole, about, SHIPPED)) is Verdict.OK
    for part in parse.runs(printed[: int(share * len(printed))].splitlines(keepends=True)):
        assert overall(judge(part, about, SHIPPED)) is not Verdict.OK or part.rows == whole.rows


def test_findings_come_worst_first_and_nothing_found_is_unknown() -> None:
    sick = replace(run({4 * GIB: 100.0, 8 * GIB: 30.0}), transports=())
    found = [rank(finding.verdict) for finding in judge(sick, P5EN, SHIPPED)]
    assert found == sorted(found, reverse=True)
    assert overall([]) is Verdict.UNKNOWN


@pytest.mark.parametrize("gone", [0, 1, 15, 30, 31])
def test_a_log_that_lacks_any_one_of_its_rows_is_not_fine(gone: int) -> None:
    lines = text(SINGLE_NODE).splitlines(keepends=True)
    rows = [at for at, line in enumerate(lines) if " float " in line]
    (holed,) = parse.runs(lines[: rows[gone]] + lines[rows[gone] + 1 :])
    assert len(holed.rows) == len(rows) - 1
    assert overall(judge(holed, RunContext("Standard_ND96isr_H100_v5"), SHIPPED)) is Verdict.UNKNOWN


@SHORT
@given(some.integers(0, 31), some.integers(5, 12), some.sampled_from(["nan", "-nan", "inf", "****", "-", "?"]))
def test_a_row_with_a_cell_that_is_no_number_is_not_fine(at: int, cell: int, odd: str) -> None:
    lines = text(SINGLE_NODE).splitlines(keepends=True)
    row = [number for number, line in enumerate(lines) if " float " in line][at]
    cells = lines[row].split()
    cells[cell] = odd
    lines[row] = "  ".join(cells) + "\n"
    for one in parse.runs(lines):
        assert overall(judge(one, RunContext("Standard_ND96isr_H100_v5"), SHIPPED)) is not Verdict.OK
