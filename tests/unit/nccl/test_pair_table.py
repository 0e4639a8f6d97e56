"""An environment's bandwidth is compared with its baseline pair by pair, by nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl import pair_table
from gpuctl.nccl.pair_table import Conditions, Table
from tests.rig.nccl.builders import ended

RDMA = Conditions("rdma", 8, 64 << 20, 1 << 30)
PAIR = ("gpu-1", "gpu-2")
BEFORE = Table(RDMA, "2026-10-01T08:00:00Z", "2.26.2", {PAIR: 370.0, ("gpu-1", "gpu-3"): 368.0})


def table(**busbw: float | None) -> Table:
    """A table of pairs of gpu-1 with others: gpu_2=370."""
    speeds: dict[tuple[str, ...], float | None] = {
        ("gpu-1", name.replace("_", "-")): value for name, value in busbw.items()
    }
    return Table(RDMA, "2026-11-01T08:00:00Z", "2.26.2", speeds)


def test_a_pair_is_its_nodes_whatever_pods_are_there_now() -> None:
    results = [
        ended("lab-0 on gpu-2", "lab-1 on gpu-1", busbw=366.0),
        ended("lab-0 on gpu-2", "lab-2 on gpu-3", busbw=None),
    ]
    measured = pair_table.measured(results, RDMA, "now")
    assert measured.busbw_gbs == {PAIR: 366.0, ("gpu-2", "gpu-3"): None}


def test_a_pair_that_ran_twice_has_its_better_run_and_pairs_on_the_same_nodes_their_slowest() -> None:
    first, second = ("lab-0 on gpu-1", "lab-1 on gpu-2"), ("lab-0 on gpu-1", "lab-2 on gpu-2")
    twice = [ended(*first, busbw=300.0), ended(*first, busbw=366.0)]
    assert pair_table.counted(twice) == twice[1:]
    shared = [*twice, ended(*second, busbw=350.0)]
    assert pair_table.measured(pair_table.counted(shared), RDMA, "now").busbw_gbs == {PAIR: 350.0}
    incomplete = [*twice, ended(*first, busbw=None)]
    assert pair_table.counted(incomplete) == incomplete[1:]
    assert pair_table.measured(incomplete, RDMA, "now").busbw_gbs == {PAIR: None}


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [(400.0, Verdict.OK), (352.0, Verdict.OK), (351.0, Verdict.WARN), (322.0, Verdict.WARN), (321.0, Verdict.FAIL)],
)
def test_the_limits_are_shares_of_the_baseline(busbw: float, verdict: Verdict) -> None:
    (row,) = pair_table.rows(table(gpu_2=busbw), BEFORE)
    assert row.verdict is verdict


def test_a_slower_pair_is_named_with_both_values_and_the_versions_if_they_differ() -> None:
    slow, as_before = pair_table.findings(replace(table(gpu_2=300.0, gpu_3=369.0), nccl="2.27.3"), BEFORE)
    assert (slow.subject, slow.verdict) == ("gpu-1 and gpu-2", Verdict.FAIL)
    assert slow.message == "300.0 GB/s, 19% below the 370.0 GB/s of 2026-10-01; NCCL 2.27.3, then 2.26.2"
    assert slow.numbers == {"busbw_gbs": 300.0, "baseline_gbs": 370.0}
    assert as_before.message == "1 pair of gpu-1, gpu-3 as in the baseline (+0.3% to +0.3%)"


def test_what_was_not_measured_is_unknown_and_what_has_no_baseline_is_said_so() -> None:
    unknown, new = pair_table.findings(table(gpu_2=None, gpu_9=200.0), BEFORE)
    assert (unknown.verdict, unknown.message) == (Verdict.UNKNOWN, "the test did not complete")
    assert (new.verdict, new.message) == (Verdict.OK, "1 pair of gpu-1, gpu-9 without a baseline so far")


def test_tables_that_were_measured_differently_are_not_compared() -> None:
    other = replace(table(gpu_2=20.0), conditions=replace(RDMA, mode="tcp"))
    (finding,) = pair_table.findings(other, BEFORE)
    assert finding.verdict is Verdict.UNKNOWN
    assert "rdma mode, 8 GPUs per pod, 64.0 MiB to 1.0 GiB" in finding.message
    assert [row.baseline_gbs for row in pair_table.rows(other, BEFORE)] == [None]
    assert pair_table.kept(other, BEFORE, overwrite=False) is None
    assert pair_table.kept(other, BEFORE, overwrite=True) == other


def test_few_slow_runs_are_repeated_and_a_fleet_that_is_slower_is_not() -> None:
    pods = ("lab-0 on gpu-1", "lab-1 on gpu-2"), ("lab-0 on gpu-1", "lab-2 on gpu-3")
    slow, good = ended(*pods[0], busbw=300.0), ended(*pods[1], busbw=368.0)
    assert pair_table.to_repeat([slow, good], BEFORE) == [slow]
    assert pair_table.to_repeat([slow], BEFORE) == [slow]
    assert pair_table.to_repeat([slow, ended(*pods[1], busbw=300.0)], BEFORE) == []
    assert pair_table.to_repeat([slow, good], None) == []


def test_a_baseline_keeps_its_values_and_takes_new_pairs() -> None:
    assert pair_table.kept(table(gpu_2=300.0), BEFORE, overwrite=False) is None
    grown = pair_table.kept(table(gpu_2=300.0, gpu_9=200.0), BEFORE, overwrite=False)
    assert grown
    assert grown.busbw_gbs == {**BEFORE.busbw_gbs, ("gpu-1", "gpu-9"): 200.0}
    assert pair_table.kept(table(gpu_2=300.0), BEFORE, overwrite=True) == table(gpu_2=300.0)
    assert pair_table.kept(table(gpu_2=300.0, gpu_3=None), None, overwrite=False) is None  # no gaps in a first one
    assert pair_table.kept(table(), None, overwrite=False) is None


def test_a_kept_table_is_read_as_it_was_and_anything_else_is_refused() -> None:
    document = pair_table.as_dict(BEFORE)
    assert pair_table.from_dict(document) == BEFORE
    changes: list[dict[str, object]] = [
        {"schema": "other"},
        {"pairs": [{"nodes": ["a"], "busbw_gbs": 0}]},
        {"conditions": {}},
    ]
    for change in changes:
        with pytest.raises((ValueError, TypeError, KeyError)):
            pair_table.from_dict({**document, **change})
