"""Iterations that were held up are told where single ones were measured."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.model import Iterations, Run
from tests.rig.nccl.judged import GIB, HEALTHY, found, run, verdicts


def timed(given: Run, most: dict[int, float]) -> Run:
    """The same run with single iterations from 100 us to this many, by size; 110 where none is given."""
    rows = []
    for row in given.rows:
        assert row.out_of_place is not None
        each = Iterations(100.0, None, 109.0, most.get(row.size_bytes, 110.0), 3.0)
        rows.append(replace(row, out_of_place=replace(row.out_of_place, per_iteration=each)))
    return replace(given, rows=tuple(rows))


def test_where_no_iteration_was_measured_nothing_is_said() -> None:
    assert found(HEALTHY, "jitter") == []


def test_even_iterations_are_well() -> None:
    (fine,) = found(timed(HEALTHY, {8 * GIB: 120.0}), "jitter")
    assert (fine.verdict, fine.numbers["size_bytes"], fine.numbers["max_us"]) == (Verdict.OK, 8 * GIB, 120.0)
    assert "took 1.2 times the quickest, at 8 GiB, out-of-place (100 and 120 us)" in fine.message


def test_one_that_took_twice_as_long_is_worth_a_look() -> None:
    (held,) = found(timed(HEALTHY, {4 * GIB: 250.0}), "jitter")
    assert (held.verdict, held.subject) == (Verdict.WARN, "4 GiB")
    assert held.hint


def test_small_sizes_are_noisy_and_do_not_count() -> None:
    small = run({8: 0.01, 8 * GIB: 367.2})
    assert verdicts(timed(small, {8: 9000.0}), "jitter") == {Verdict.OK}
