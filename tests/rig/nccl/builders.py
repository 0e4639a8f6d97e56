"""Runs built by hand, for tests of what stands above the parser."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Row, Run, Sweep, Timing

GIB = 1 << 30


def run(speeds: Mapping[int, float], outcome: Outcome = Outcome.COMPLETE, cause: str | None = None) -> Run:
    """An all_reduce whose rows have these bus bandwidths (GB/s) by size in bytes."""
    rows = tuple(_row(size, busbw) for size, busbw in speeds.items())
    return Run(outcome, cause, "all_reduce", rows, None, 0)


def _row(size: int, busbw: float) -> Row:
    time_us = size / (busbw * 1e3)
    half = Timing(time_us, busbw, busbw, 0)
    return Row(size, size // 4, "float", "sum", -1, half, half)


def ended(*nodes: str, busbw: float | None, rail: str = "") -> LaunchResult:
    """A launch on some nodes that ran at this speed at large sizes; None: it hung before its first row."""
    sizes = {GIB << i: busbw for i in range(4)} if busbw is not None else {}
    done = run(sizes) if sizes else run({}, Outcome.HUNG, "it stood still")
    return LaunchResult(Launch(nodes, Sweep(end_bytes=8 * GIB), rail), done, 12.5)
