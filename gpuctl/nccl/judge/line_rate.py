"""line-rate: a ring cannot exceed the adapters of a node, so a faster Ring run contradicts its options.

All that the bus bandwidth of a ring counts leaves every node once (rates.ring_share). So it was no ring, or the
machines are of another type: what was then judged is not the run that was given.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import Numbers, by_size, size
from gpuctl.nccl.model import Run

RULE = "line-rate"
RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
ROUNDED = 1.01  # what is printed is rounded, and so is a line rate
ADVICE = "leave out --algo if NCCL_ALGO was not set, and check that --instance names these machines"


def line_rate(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    system = book.systems.get(about.system or "")
    if system is None or (about.nodes or 0) < 2 or about.algorithm != "Ring" or about.collective not in RINGS:
        return
    speeds = [(row.out_of_place.busbw_gbs, row.size_bytes) for row in by_size(run) if row.out_of_place]
    best, at = max(speeds, default=(0.0, 0))
    line = system.line_rate_gbs
    if best > ROUNDED * line:
        message = (
            f"{best:g} GB/s at {size(at)} is above the {line:g} GB/s that the adapters of a {system.name} carry: "
            f"the run used no ring, or the machine type is another"
        )
        numbers: Numbers = {"busbw_gbs": best, "line_rate_gbs": line, "size_bytes": at}
        yield Finding(RULE, "", Verdict.UNKNOWN, message, numbers, ADVICE)
