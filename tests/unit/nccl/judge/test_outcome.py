"""A run that is not whole is never OK, whatever its summary says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.domain.findings import Finding, Verdict, overall
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.messages import sizes_measured
from gpuctl.nccl.model import NoNumber, Outcome
from gpuctl.nccl.parsing import parse
from tests.rig.nccl.judged import GIB, HEALTHY, P5EN, SHIPPED, found, recorded, run, said
from tests.rig.nccl.recorded import TEXTS, text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("oci_a100_manyn_allreduce_ellipsis.log", "only 1 of the 31 sizes"),
        ("rocm_mi350x_8g_excerpt.log", "only 2 of the 31 sizes"),
        ("rocm_fixture_pass.log", "only 5 of the 22 sizes"),
        ("a100_2n16g_elided_dots.log", "only 1 of the 31 sizes"),
        ("mi350x_8g_excerpt.log", "only 2 of the 30 sizes"),
        ("mi300x_4g_rccl_single_blanks.log", "only 3 of the 22 sizes"),
    ],
)
def test_a_log_with_a_summary_and_without_all_its_rows_is_unknown(name: str, says: str) -> None:
    run = recorded(name)
    assert run.outcome is Outcome.COMPLETE
    (finding,) = found(run, "outcome")
    assert finding.verdict is Verdict.UNKNOWN
    assert says in finding.message
    assert finding.numbers["sizes_announced"] == int(says.split()[4])


@pytest.mark.parametrize(
    "name",
    [
        "gb200_excerpt.log",
        "h100_2n_efa_excerpt_tagged.log",
        "azure_gb200_nvl_skill_excerpt.log",
        "aws_p5_efa_2n_mpijob_ellipsis.log",
    ],
)
def test_an_excerpt_that_says_so_by_its_dots_is_never_ok(name: str) -> None:
    (finding,) = found(recorded(name), "outcome", RunContext(nodes=1))
    assert finding.verdict is Verdict.UNKNOWN
    assert "the text is an excerpt" in finding.message


def test_an_average_that_the_rows_do_not_come_to_is_one_of_other_rows() -> None:
    bare = replace(HEALTHY, sizes_announced=4)
    assert found(replace(bare, avg_busbw_gbs=358.05), "outcome") == []
    (finding,) = found(replace(bare, avg_busbw_gbs=203.2), "outcome")
    assert finding.verdict is Verdict.UNKNOWN
    assert "the log reports an average of 203.2 GB/s, but its 4 rows average 358.05" in finding.message


def test_no_whole_recorded_log_is_taken_for_an_excerpt_by_its_average() -> None:
    texts = [text(name).splitlines() for name in TEXTS if name.endswith(".log")]
    whole = [one for lines in texts for one in parse.runs(lines)]
    averaged = [one for one in whole if one.avg_busbw_gbs and one.sizes_announced == sizes_measured(one)]
    assert len(averaged) >= 10
    assert [one for one in averaged if any("average" in f.message for f in found(one, "outcome"))] == []


def test_ones_own_ctrl_c_is_not_blamed_on_a_scheduler_and_asks_nothing_of_the_network() -> None:
    ended = replace(HEALTHY, outcome=Outcome.KILLED, cause="broken off", transports=(), rows=HEALTHY.rows[:2])
    (finding,) = judge(ended, P5EN, SHIPPED)
    assert (finding.check, finding.verdict) == ("outcome", Verdict.UNKNOWN)
    assert finding.message == "the run was interrupted, after 2 rows: it proves nothing"
    assert finding.hint == "run it again, and let it finish"
    fell = said(replace(ended, transports=HEALTHY.transports), "node-2", network="Socket", provider=None, nics=())
    assert Verdict.FAIL in {one.verdict for one in judge(fell, P5EN, SHIPPED)}, "what was seen until then counts"


def test_a_run_with_all_its_rows_says_nothing_of_it() -> None:
    assert found(replace(HEALTHY, sizes_announced=4), "outcome") == []


def test_rows_of_each_type_are_counted_by_themselves() -> None:
    halves = tuple(replace(row, type="half") for row in HEALTHY.rows)
    both = replace(HEALTHY, rows=HEALTHY.rows + halves, sizes_announced=4)
    assert found(both, "outcome") == []
    (finding,) = found(replace(both, rows=both.rows[:-1]), "outcome")
    assert "only 3 of the 4 sizes" in finding.message


def test_what_is_no_number_is_unknown_and_the_rest_is_judged() -> None:
    holed = replace(HEALTHY, not_numbers=(NoNumber(GIB, "in_place", "busbw_gbs", "nan"),))
    (finding,) = found(holed, "outcome")
    assert finding.verdict is Verdict.UNKNOWN
    assert "busbw nan at 1 GiB, in-place" in finding.message
    assert overall(judge(holed, P5EN, SHIPPED)) is Verdict.UNKNOWN


def test_a_size_whose_wrong_values_nobody_could_read_is_not_ok() -> None:
    last = HEALTHY.rows[-1]
    assert last.out_of_place is not None
    unread = replace(last, out_of_place=replace(last.out_of_place, wrong=None))
    odd = NoNumber(16 * GIB, "out_of_place", "wrong", "-")
    holed = replace(HEALTHY, rows=(*HEALTHY.rows[:-1], unread), not_numbers=(odd,))
    assert overall(judge(holed, P5EN, SHIPPED)) is Verdict.UNKNOWN


@pytest.mark.parametrize("name", ["health_check_without_test.log", "oci_active_healthcheck.log"])
def test_where_no_test_began_no_rows_are_counted(name: str) -> None:
    (finding,) = found(recorded(name), "outcome")
    assert finding.message == "no test began: nothing of nccl-tests was printed"


@pytest.mark.parametrize("name", ["torch_ib_error12.log", "torch_ib_completion_error12.log"])
def test_an_adapter_that_was_never_answered_is_told_with_where_to_look(name: str) -> None:
    (finding,) = found(recorded(name), "outcome")
    assert finding.message.endswith("with error 12, opcode 0"), "the line was wrapped in the middle of its list"
    assert "cable" in finding.hint


def gaps(sizes: set[int]) -> list[Finding]:
    return found(replace(run(dict.fromkeys(sorted(sizes), 300.0)), sizes_announced=None), "outcome")


@pytest.mark.parametrize("name", ["h200_16n128g_excerpt.log", "aws_p5en_slurm_excerpt.log"])
def test_dots_of_an_excerpt_without_a_heading_are_a_gap_between_sizes(name: str) -> None:
    (finding,) = found(recorded(name), "outcome")
    assert finding.verdict is Verdict.UNKNOWN
    assert "lacks the sizes between 16 B and 16 GiB" in finding.message


def test_a_gap_between_sizes_is_seen_without_a_heading() -> None:
    assert gaps({GIB, 16 * GIB}) == [], "of two sizes nobody can say it"
    (finding,) = gaps({GIB, 2 * GIB, 4 * GIB, 16 * GIB})
    assert "lacks the sizes between 4 GiB and 16 GiB" in finding.message


def test_a_step_of_bytes_and_rounded_small_sizes_are_no_gap() -> None:
    assert gaps({GIB * (1 + 2 * i) for i in range(5)}) == []
    assert gaps({8, 48, 96, 240, 480}) == []


def test_a_log_without_its_summary_is_unknown_though_every_size_is_there() -> None:
    (finding,) = found(replace(HEALTHY, out_of_bounds=None), "outcome")
    assert finding.verdict is Verdict.UNKNOWN
    assert "the log lacks the summary" in finding.message
