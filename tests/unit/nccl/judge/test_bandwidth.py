"""Bandwidth against the row that is about it, size by size; without one nothing is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict, overall
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Timing
from tests.rig.nccl.judged import GIB, HEALTHY, P5EN, SHIPPED, found, recorded, run, verdicts


def test_the_measured_run_on_four_p5en_holds() -> None:
    (fine,) = found(HEALTHY, "baseline")
    assert fine.verdict is Verdict.OK
    assert (fine.numbers["busbw_gbs"], fine.numbers["warn_gbs"], fine.numbers["line_rate_gbs"]) == (364.9, 350, 400)
    assert overall(judge(HEALTHY, P5EN, SHIPPED)) is Verdict.OK


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [(350, Verdict.OK), (349.99, Verdict.WARN), (320, Verdict.WARN), (319.99, Verdict.FAIL), (18, Verdict.FAIL)],
)
def test_each_size_stands_for_itself(busbw: float, verdict: Verdict) -> None:
    one = run({4 * GIB: 364.9, 8 * GIB: busbw, 16 * GIB: 369.1})
    judged = found(one, "baseline")
    assert judged[0].verdict is verdict
    if verdict is not Verdict.OK:
        assert judged[0].subject == "8 GiB"
        assert judged[0].numbers["busbw_gbs"] == busbw
        assert judged[0].hint
        assert judged[1].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("name", "average"), [("h200_16n128g_excerpt.log", 81.3375), ("aws_p5en_slurm_excerpt.log", 84.0569)]
)
def test_the_average_line_counts_for_nothing(name: str, average: float) -> None:
    # Small messages drag it down to 84 GB/s on a fabric that reaches 370.
    slow_on_average = recorded(name)
    assert slow_on_average.avg_busbw_gbs == pytest.approx(average)
    about = replace(P5EN, nodes=16)
    assert verdicts(slow_on_average, "baseline", about) == {Verdict.OK}
    fast_on_average = replace(run({4 * GIB: 200.0}), avg_busbw_gbs=400.0)
    assert verdicts(fast_on_average, "baseline") == {Verdict.FAIL}


def test_without_a_machine_type_bandwidth_is_reported_and_neither_passes_nor_fails() -> None:
    (finding,) = found(HEALTHY, "baseline", RunContext())
    assert finding.verdict is Verdict.WARN
    assert "no baseline" in finding.message
    assert finding.numbers["peak_gbs"] == 369.1
    assert "--instance" in finding.hint


def test_a_fabric_that_nobody_measured_is_not_judged() -> None:
    assert verdicts(HEALTHY, "baseline", RunContext("p6-b300.48xlarge")) == {Verdict.WARN}
    assert verdicts(run({4 * GIB: 200.0}, nodes=3), "baseline") == {Verdict.WARN}
    assert verdicts(run({4 * GIB: 200.0}, gpus=7), "baseline") == {Verdict.WARN}
    assert verdicts(HEALTHY, "baseline", replace(P5EN, algorithm="NVLSTree")) == {Verdict.WARN}


def test_a_collective_without_a_baseline_warns_as_any_other_run_without_one_and_wants_a_calibration() -> None:
    (finding,) = found(HEALTHY, "baseline", replace(P5EN, collective="alltoall"))
    assert finding.verdict is Verdict.WARN
    assert "none exists for alltoall on 4 nodes of p5en.48xlarge" in finding.message
    known = "all_gather, all_reduce, reduce_scatter"
    assert finding.message.endswith(f"baselines for such runs exist for {known} only")
    assert "gpuctl nccl calibrate --collective alltoall" in finding.hint
    assert verdicts(run({4 * GIB: 200.0}, nodes=100), "baseline", replace(P5EN, collective="alltoall")) == {
        Verdict.WARN
    }


@pytest.mark.parametrize("busbw", [239.0, 40.0, 0.5])
def test_an_inferred_limit_warns_and_never_fails(busbw: float) -> None:
    about = replace(P5EN, collective="reduce_scatter")
    (finding,) = found(run({4 * GIB: busbw}), "baseline", about)
    assert finding.verdict is Verdict.WARN
    assert f"{busbw:g} GB/s at 4 GiB is below the warn limit 240 (derived: derived from all_reduce" in finding.message
    assert "gpuctl nccl calibrate" in finding.hint
    assert verdicts(run({4 * GIB: 345.0}), "baseline", about) == {Verdict.OK}


@pytest.mark.parametrize("collective", ["all_gather", "alltoall", "broadcast", "reduce", "reduce_scatter"])
def test_eight_healthy_a100_hold_in_every_collective(collective: str) -> None:
    log = recorded(f"a100_8g_{collective.replace('_', '')}_old_unchecked.log")
    about = RunContext("Standard_ND96asr_v4", 1, 8, collective=collective)
    assert verdicts(log, "baseline", about) == {Verdict.OK}
    rows = tuple(replace(row, out_of_place=slower(row.out_of_place)) for row in log.rows if row.out_of_place)
    assert verdicts(replace(log, rows=rows), "baseline", about) == {Verdict.WARN}


def slower(half: Timing) -> Timing:
    return replace(half, busbw_gbs=half.busbw_gbs / 2)


def test_where_no_row_is_known_those_that_are_near_are_told() -> None:
    (finding,) = found(run({4 * GIB: 200.0}, nodes=3), "baseline")
    assert "none exists for all_reduce on 3 nodes of p5en.48xlarge, 8 GPUs each, NCCL's choice of algorithm" in (
        finding.message
    )
    assert "(known: 2 nodes of 8 GPUs, default; 4 nodes of 8 GPUs, default or Ring; 4 to 8 nodes" in finding.message
    (finding,) = found(run({4 * GIB: 360.0}, nodes=1000, gpus=8), "baseline")
    assert finding.verdict is Verdict.WARN
    assert "(known: 17 to 32 nodes of 8 GPUs, default; 5 to 16 nodes" in finding.message
    (finding,) = found(run({4 * GIB: 200.0}, nodes=3), "baseline", RunContext("p6-b300.48xlarge", algorithm="Ring"))
    assert finding.message.endswith("NCCL_ALGO=Ring"), "where nothing is near nothing is told of it"


@pytest.mark.parametrize("name", ["h100_2n8g_sendrecv_roce_info.log", "moc_h100_roce_2n8g_sendrecv_ncclinfo.log"])
def test_a_collective_that_nobody_named_is_asked_for(name: str) -> None:
    (finding,) = found(recorded(name), "baseline")
    assert (finding.verdict, "None" in finding.message) == (Verdict.UNKNOWN, False)
    assert "--collective" in finding.hint


def test_a_misspelt_machine_type_is_told() -> None:
    (finding,) = found(HEALTHY, "baseline", RunContext("p5en.48xlarg"))
    assert "did you mean p5en.48xlarge?" in finding.message


def test_what_the_run_could_have_told_is_unknown() -> None:
    elided = recorded("h200_16n128g_excerpt.log")
    assert verdicts(elided, "baseline", P5EN) == {Verdict.UNKNOWN}
    small = run({1 * GIB: 331.0})
    (finding,) = found(small, "baseline")
    assert finding.verdict is Verdict.UNKNOWN
    assert "-e 16G" in finding.hint


def test_a_row_above_the_sizes_that_were_run_is_named_with_the_way_to_reach_it() -> None:
    whole = recorded("h100_1n8g_allreduce.log")
    default = replace(whole, rows=tuple(row for row in whole.rows if row.size_bytes <= 8 * GIB))
    (finding,) = found(default, "baseline", RunContext("Standard_ND96isr_H100_v5"))
    assert finding.verdict is Verdict.UNKNOWN
    assert "no baseline at the sizes that were run (8 B to 8 GiB); the published row is for 16 GiB" in finding.message
    assert "-e 16G" in finding.hint
    assert (finding.numbers["baseline_from_bytes"], finding.numbers["baseline_to_bytes"]) == (16 * GIB, 16 * GIB)


def test_a_row_below_the_sizes_that_were_run_and_one_between_them_are_reached_from_there() -> None:
    def advised(low: int, high: int, speeds: dict[int, float]) -> str:
        own = replace(SHIPPED.rows[0], from_bytes=low, to_bytes=high, site=True)
        (finding,) = [f for f in judge(run(speeds), P5EN, Book(SHIPPED.systems, (own,))) if f.check == "baseline"]
        assert finding.verdict is Verdict.UNKNOWN
        assert "your own row is for" in finding.message
        return finding.hint

    assert "-e 512M" in advised(512 << 20, 512 << 20, {GIB >> 3: 300.0})
    assert "-b 512M" in advised(512 << 20, 512 << 20, {GIB: 300.0})
    assert "-b 3G -e 3G" in advised(3 * GIB, 3 * GIB, {2 * GIB: 300.0, 4 * GIB: 300.0})


def test_several_rows_at_other_sizes_are_told_with_their_span() -> None:
    own = [replace(SHIPPED.rows[0], from_bytes=GIB << i, to_bytes=GIB << i, site=True) for i in range(3)]
    (finding,) = [f for f in judge(run({3 * GIB: 300.0}), P5EN, Book(SHIPPED.systems, own)) if f.check == "baseline"]
    assert "your own rows are for 1 GiB to 4 GiB" in finding.message
    assert "-b 1G -e 4G" in finding.hint


@pytest.mark.parametrize("name", ["h100_2n_efa_excerpt_tagged.log", "aws_p5_efa_2n_mpijob_ellipsis.log"])
def test_two_nodes_cannot_qualify_the_fabric_whatever_they_reach(name: str) -> None:
    about = RunContext("p5.48xlarge", nodes=2)
    fast = recorded(name)
    (told,) = found(fast, "two-nodes", about)
    assert told.verdict is Verdict.UNKNOWN
    assert "above the node's line rate of 400" in told.message
    assert "NCCL_ALGO=Ring" in told.hint
    assert verdicts(fast, "baseline", about) == {Verdict.OK}, "a healthy 313 GB/s at 1 GiB is no fall-back"
    assert verdicts(fast, "two-nodes", replace(about, algorithm="Ring")) == set()
    assert verdicts(HEALTHY, "two-nodes") == set()


def test_a_ring_that_nccl_chose_itself_does_not_qualify_two_nodes() -> None:
    chosen = replace(run({8 * GIB: 390.0}, nodes=2), algorithms=("Ring",))
    (told,) = found(chosen, "two-nodes", RunContext("p5.48xlarge"))
    assert told.verdict is Verdict.UNKNOWN
    assert "chose Ring by itself" in told.message
    assert told.numbers["chosen"] == "Ring"
    assert found(replace(chosen, forced_algorithms=("Ring",)), "two-nodes", RunContext("p5.48xlarge")) == []


def test_a_row_for_a_forced_ring_is_not_for_a_run_whose_ring_nccl_chose() -> None:
    ring = replace(SHIPPED.rows[0], algorithms=("Ring",))
    chosen = replace(HEALTHY, algorithms=("Ring",))
    book = Book(SHIPPED.systems, (ring,))
    assert {f.verdict for f in judge(chosen, P5EN, book) if f.check == "baseline"} == {Verdict.WARN}
    forced = replace(chosen, forced_algorithms=("Ring",))
    assert {f.verdict for f in judge(forced, P5EN, book) if f.check == "baseline"} == {Verdict.OK}


def test_two_nodes_that_fell_back_fail_where_somebody_measured_such_machines_and_warn_where_it_is_inferred() -> None:
    slow = run({2 * GIB: 17.0, 8 * GIB: 17.1}, nodes=2)
    assert verdicts(slow, "baseline", RunContext("p5.48xlarge")) == {Verdict.FAIL}
    assert verdicts(slow, "baseline", RunContext("p5en.48xlarge")) == {Verdict.WARN}


def test_an_untuned_p4d_is_below_its_inferred_limit_and_a_measured_p4de_is_not() -> None:
    assert verdicts(run({GIB: 57.0}, nodes=2), "baseline", RunContext("p4d.24xlarge")) == {Verdict.WARN}
    assert verdicts(run({GIB: 57.0}, nodes=2), "baseline", RunContext("p4de.24xlarge")) == {Verdict.FAIL}
    assert verdicts(run({GIB: 76.8, 2 * GIB: 78.3}, nodes=2), "baseline", RunContext("p4de.24xlarge")) == {Verdict.OK}


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("h100_1n8g_allreduce.log", "Standard_ND96isr_H100_v5"),
        ("dgxh100_1n8g_allreduce_full.log", "Standard_ND96isr_H100_v5"),
        ("sb_a100_8gpu_allreduce.log", "Standard_ND96asr_v4"),
    ],
)
def test_recorded_single_nodes_reach_what_azure_asks_for(name: str, system: str) -> None:
    assert verdicts(recorded(name), "baseline", RunContext(system)) == {Verdict.OK}


def test_a_slow_node_alone_is_advised_on_its_own_wires() -> None:
    slow = run({16 * GIB: 370.0}, nodes=1)
    (fell,) = found(slow, "baseline", RunContext("Standard_ND96isr_H100_v5"))
    assert fell.verdict is Verdict.FAIL
    assert "NVLink" in fell.hint


def test_a_ring_tells_its_share_of_the_line_rate() -> None:
    (fine,) = found(HEALTHY, "baseline", replace(P5EN, algorithm="Ring"))
    assert fine.numbers["share_of_line_rate"] == pytest.approx(0.912)


def test_a_sites_own_row_wins_and_a_forced_one_is_marked_in_every_judgement() -> None:
    theirs = SHIPPED.rows[0]
    own = replace(
        theirs, site=True, expect=300, warn=285, fail=261, below_published=320, measured={"date": "2026-11-21"}
    )
    book = Book(SHIPPED.systems, (own, *SHIPPED.rows))
    slow = run({4 * GIB: 299.0, 8 * GIB: 301.0})
    judged = [finding for finding in judge(slow, P5EN, book) if finding.check == "baseline"]
    assert [finding.verdict for finding in judged] == [Verdict.WARN]
    assert "FORCED below the published limit 320" in judged[0].message
    assert judged[0].numbers["below_published_gbs"] == 320
    unforced = Book(SHIPPED.systems, (replace(own, below_published=None), *SHIPPED.rows))
    assert [f.verdict for f in judge(slow, P5EN, unforced) if f.check == "baseline"] == [Verdict.OK]


def test_a_run_that_measured_in_place_alone_is_not_judged_and_says_so() -> None:
    inside = replace(HEALTHY, rows=tuple(replace(row, out_of_place=None) for row in HEALTHY.rows))
    (finding,) = found(inside, "baseline")
    assert (finding.verdict, "no out-of-place bandwidth" in finding.message) == (Verdict.UNKNOWN, True)
