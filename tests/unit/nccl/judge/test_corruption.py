"""Wrong values, values nobody checked, and runs that did not end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict, overall
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Outcome
from tests.rig.nccl.judged import GIB, HEALTHY, SHIPPED, found, recorded, row, run, verdicts


def test_wrong_values_of_each_size_are_a_finding() -> None:
    first, second = found(recorded("gh200_2n2g_allreduce_wrong.log"), "corruption", RunContext())
    assert (first.verdict, first.subject, second.subject) == (Verdict.FAIL, "4 MiB", "8 MiB")
    assert first.numbers == {"out_of_place_wrong": 48, "in_place_wrong": 16}


def test_wrong_values_fail_with_their_size_and_number() -> None:
    (wrong,) = found(recorded("gh200_2n2g_slingshot_FAILED_wrong96.log"), "corruption", RunContext())
    assert (wrong.verdict, wrong.subject) == (Verdict.FAIL, "1 MiB")
    assert wrong.numbers == {"out_of_place_wrong": 96, "in_place_wrong": 32}


def test_one_wrong_value_fails_the_fastest_run() -> None:
    rows = (*HEALTHY.rows[:-1], row(16 * GIB, 369.1, wrong=1))
    assert verdicts(replace(HEALTHY, rows=rows), "corruption") == {Verdict.FAIL}


def test_a_summary_of_wrong_values_fails_where_no_row_shows_them() -> None:
    assert verdicts(replace(HEALTHY, out_of_bounds=4), "corruption") == {Verdict.FAIL}
    assert verdicts(replace(HEALTHY, outcome=Outcome.CORRUPT), "corruption") == {Verdict.FAIL}


@pytest.mark.parametrize(
    "name",
    [
        "a100_8g_allreduce_old_unchecked.log",
        "a100_8g_allreduce_unchecked.json",
        "sb_a100_8gpu_allreduce.log",
        "derived_json_a100_nwrong_null.json",
    ],
)
def test_values_that_nobody_checked_are_unknown(name: str) -> None:
    (finding,) = found(recorded(name), "corruption", RunContext())
    assert finding.verdict is Verdict.UNKNOWN
    assert "not checked" in finding.message
    assert "-c 0" in finding.hint


@pytest.mark.parametrize("name", ["a100_2n16g_allreduce_old.log", "abci_a100_16n128g_allreduce_oldfmt.log"])
def test_deviations_that_older_versions_print_are_no_wrong_values(name: str) -> None:
    assert verdicts(recorded(name), "corruption", RunContext()) == {Verdict.OK}


@pytest.mark.parametrize("name", ["h100_2n8g_sendrecv_roce_info.log", "moc_h100_roce_2n8g_sendrecv_ncclinfo.log"])
def test_a_half_that_cannot_be_checked_in_place_is_checked_out_of_place(name: str) -> None:
    assert verdicts(recorded(name), "corruption", RunContext()) == {Verdict.OK}


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome.FAILED, Verdict.FAIL),
        (Outcome.HUNG, Verdict.FAIL),
        (Outcome.KILLED, Verdict.UNKNOWN),
        (Outcome.TRUNCATED, Verdict.UNKNOWN),
        (Outcome.EMPTY, Verdict.UNKNOWN),
    ],
)
def test_a_run_that_did_not_end_well_is_never_fine_and_says_why(outcome: Outcome, verdict: Verdict) -> None:
    cause = "rank 12 on node-1: unhandled system error, ibv_create_qp failed"
    cut = replace(HEALTHY, outcome=outcome, cause=cause)
    (finding,) = found(cut, "outcome")
    assert finding.verdict is verdict
    assert cause in finding.message
    assert finding.hint


def test_a_run_that_ended_without_a_row_is_unknown() -> None:
    assert overall(judge(run({}), None, SHIPPED)) is Verdict.UNKNOWN
