"""A run of one rank, or of ranks that share a GPU, proves nothing, and the judge says so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nccl.context import infer
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Run
from gpuctl.nccl.parsing import parse
from tests.rig.nccl.judged import HEALTHY, LOGS, P5EN, SHIPPED, found, recorded
from tests.rig.nccl.recorded import text

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


def test_a_report_tells_of_shared_gpus_like_a_log() -> None:
    # nccl-tests copies what stands in brackets in its list of ranks.
    report = json.loads(text("h100_2n16g_allreduce.json"))
    for number, device in enumerate(report["config"]["devices"]):
        device["device_hex"] = f"0000:{0x10 + number // 2:02x}:00"
    (run,) = parse.runs([json.dumps(report) + "\n"])
    findings = found(run, "ranks")
    assert {one.verdict for one in findings} == {Verdict.UNKNOWN}
    assert "2 ranks (0, 1) share one GPU on alder-11, 0000:10:00" in findings[0].message
    assert len(findings) == 8


@pytest.mark.parametrize("collective", ["all_reduce", "sendrecv"])
def test_a_process_of_several_gpus_is_as_many_ranks_though_a_report_lists_the_first_alone(collective: str) -> None:
    report = json.loads(text("a100_8g_allreduce_unchecked.json"))
    report["args"][0] = f"./{collective}_perf"
    report["config"]["devices"] = report["config"]["devices"][:1]
    for row in report["results"] if collective == "sendrecv" else ():  # its factor is 1, however many ranks
        for half in ("out_of_place", "in_place"):
            row[half]["bus_bw"] = row[half]["alg_bw"]
    (run,) = parse.runs([json.dumps(report) + "\n"])
    about = infer(run)
    assert (about.nodes, about.gpus_per_node, about.ranks, about.gpu) == (1, 8, 8, "NVIDIA A100-SXM4-80GB")
    assert not found(run, "ranks")


def test_gpus_with_addresses_of_their_own_or_unknown_ones_are_no_finding() -> None:
    assert not found(log("0000:06:00", "0001:06:00"), "ranks")
    # Old builds print the bus alone, which pairs of GPUs of a p4d share.
    assert not found(log("0x10", "0x10"), "ranks")
    elsewhere = tuple(replace(rank, bus_id="0000:06:00") for rank in HEALTHY.ranks[::8])
    assert not found(replace(HEALTHY, ranks=elsewhere), "ranks")


@pytest.mark.parametrize("name", LOGS)
def test_no_recorded_run_is_doubted(name: str) -> None:
    assert not [one for one in judge(recorded(name), P5EN, SHIPPED) if one.check == "ranks"]
