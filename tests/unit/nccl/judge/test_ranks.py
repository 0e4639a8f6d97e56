"""A run of one rank, or of ranks that share a GPU, proves nothing, and the judge says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Run
from gpuctl.nccl.parsing import parse
from tests.rig.nccl.judged import HEALTHY, LOGS, P5EN, SHIPPED, found, recorded

LIST = """# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
{}#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
  1073741824     268435456     float     sum      -1   8156.1  131.65  {busbw}      0   8156.1  131.65  {busbw}      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {busbw}
"""
RANK = "#  Rank  {} Group  0 Pid 57469{} on node-1 device  {} [{}] NVIDIA H100 80GB HBM3\n"


def log(*bus_ids: str, busbw: str = "131.65") -> Run:
    ranks = "".join(RANK.format(number, number, number, bus_id) for number, bus_id in enumerate(bus_ids))
    (parsed,) = parse.runs(LIST.format(ranks, busbw=busbw).splitlines(keepends=True))
    return parsed


@pytest.mark.parametrize("given", [log("0000:06:00", busbw="0.00"), log(busbw="0.00")])
def test_one_rank_proves_nothing(given: Run) -> None:
    (finding,) = found(given, "ranks")
    assert finding.verdict is Verdict.UNKNOWN
    assert "one rank" in finding.message


def test_ranks_on_one_gpu_prove_nothing_and_are_named() -> None:
    (finding,) = found(log("0000:06:00", "0000:06:00"), "ranks")
    assert (finding.verdict, finding.subject) == (Verdict.UNKNOWN, "node-1")
    assert "2 ranks (0, 1) share one GPU on node-1, 0000:06:00" in finding.message


def test_gpus_with_addresses_of_their_own_or_unknown_ones_are_no_finding() -> None:
    assert not found(log("0000:06:00", "0001:06:00"), "ranks")
    # Old builds print the bus alone, which pairs of GPUs of a p4d share.
    assert not found(log("0x10", "0x10"), "ranks")
    elsewhere = tuple(replace(rank, bus_id="0000:06:00") for rank in HEALTHY.ranks[::8])
    assert not found(replace(HEALTHY, ranks=elsewhere), "ranks")


@pytest.mark.parametrize("name", LOGS)
def test_no_recorded_run_is_doubted(name: str) -> None:
    assert not [one for one in judge(recorded(name), P5EN, SHIPPED) if one.check == "ranks"]
