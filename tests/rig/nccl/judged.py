"""Runs and knowledge made by hand, and runs read from outputs, for the judge's tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines import load
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Outcome, Rank, Row, Run, Timing, Transport
from gpuctl.nccl.parsing import parse
from tests.rig.nccl.recorded import FACTS, text

LOGS = sorted(name for name in FACTS if name.endswith(".log"))
GIB = 1 << 30
SHIPPED = load.load(load.SHIPPED)
P5EN = RunContext("p5en.48xlarge")


def row(
    size_bytes: int, out: float | None, inside: float | None = None, wrong: float | None = 0, ranks: int = 32
) -> Row:
    """A row with these bus bandwidths, as an all-reduce of so many ranks prints them."""

    def half(busbw: float | None) -> Timing | None:
        if busbw is None:
            return None
        algbw = busbw / (2 * (ranks - 1) / ranks)
        return Timing(round(size_bytes / (max(algbw, 1e-9) * 1e3), 2), round(algbw, 2), round(busbw, 2), wrong)

    return Row(size_bytes, size_bytes // 4, "float", "sum", -1, half(out), half(out if inside is None else inside))


def run(speeds: Mapping[int, float], nodes: int = 4, gpus: int = 8, wrong: float | None = 0) -> Run:
    """A whole all-reduce on EFA: size in bytes -> busbw in GB/s; one process a GPU, every rank said its network."""
    ranks = tuple(Rank(i, f"node-{i // gpus}", 100 + i, i % gpus, "NVIDIA H200") for i in range(nodes * gpus))
    rows = tuple(row(size_bytes, speed, wrong=wrong, ranks=len(ranks)) for size_bytes, speed in speeds.items())
    said = tuple(efa(rank) for rank in ranks)
    chosen = ("Ring", "Tree", "NVLSTree")
    whole = Run(Outcome.COMPLETE, None, "all_reduce", rows, None, 0, ranks, said, chosen)
    return replace(whole, sizes_announced=len(rows))


def efa(rank: Rank, nics: int = 16) -> Transport:
    names = tuple(f"rdmap{i}s0" for i in range(nics))
    return Transport(rank.rank, rank.host, "AWS Libfabric", "efa", names, True)


def said(given: Run, host: str, **other: object) -> Run:
    """The same run, but the ranks of one node said something else."""
    changed = [replace(one, **other) if one.host == host else one for one in given.transports]  # type: ignore[arg-type]
    return replace(given, transports=tuple(changed))


HEALTHY = run({1 * GIB: 331.0, 4 * GIB: 364.9, 8 * GIB: 367.2, 16 * GIB: 369.1})


def recorded(name: str) -> Run:
    """The one run in an excerpt of ours or in a recording."""
    (parsed,) = parse.runs(text(name).splitlines(keepends=True))
    return parsed


def found(given: Run, rule: str, about: RunContext = P5EN) -> list[Finding]:
    """What one rule found."""
    return [finding for finding in judge(given, about, SHIPPED) if finding.check == rule]


def verdicts(given: Run, rule: str, about: RunContext = P5EN) -> set[Verdict]:
    return {finding.verdict for finding in found(given, rule, about)}
