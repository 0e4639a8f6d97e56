"""jitter: iterations at a large size take similar times; one that takes twice as long was delayed.

It needs times of single iterations (nccl-tests -I). A training step waits for its slowest iteration, and an average
hides it. The limit is this project's own; above it the verdict is WARN, never FAIL.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import Numbers, by_kind, grown, halves, size
from gpuctl.nccl.model import Iterations, Run

RULE = "jitter"
MOST = 2.0  # times the quickest iteration
ADVICE = (
    "run it again with more iterations (-n 200); if it persists, look for pauses and lost packets on adapters and "
    "switches, for throttled clocks, and for other jobs on these nodes"
)


def jitter(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    counted = [row for rows in by_kind(run) for row in grown(rows)]
    measured = [
        (one.max_us / one.min_us, row.size_bytes, name, one)
        for row in counted
        for name, half in halves(row)
        if (one := half.per_iteration) is not None and one.min_us > 0
    ]
    if measured:
        yield _finding(*max(measured, key=lambda measurement: measurement[0]), len({row.size_bytes for row in counted}))


def _finding(times: float, size_bytes: int, half: str, one: Iterations, counted: int) -> Finding:
    text = f"the slowest iteration took {times:.2g} times the quickest, at {size(size_bytes)}, {half}"
    numbers: Numbers = {
        "size_bytes": size_bytes,
        "min_us": one.min_us,
        "median_us": one.median_us,
        "p99_us": one.p99_us,
        "max_us": one.max_us,
        "cv_percent": one.cv_percent,
        "sizes": counted,
        "most_times": MOST,
    }
    message = f"{text} ({one.min_us:g} and {one.max_us:g} us)"
    if times >= MOST:
        return Finding(RULE, size(size_bytes), Verdict.WARN, message, numbers, ADVICE)
    return Finding(RULE, "", Verdict.OK, message, numbers)
