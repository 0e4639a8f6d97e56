"""two-nodes: between two nodes a tree sends less over the network than busbw counts, so speed proves little.

NCCL takes the whole rate between the nodes for a tree of two, half of it beyond (src/graph/tuning.cc); reported busbw
there may be above the line rate of the node, and a dead adapter may not show. See nccl-tests#22 and #196.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import by_size
from gpuctl.nccl.model import Run

ADVICE = "run it again with NCCL_ALGO=Ring, or on at least four nodes; on EFA `ib_write_bw -c SRD` works without NCCL"


def two_nodes(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    if about.nodes != 2 or about.collective != "all_reduce" or about.algorithm == "Ring" or not run.rows:
        return
    peak = max((row.out_of_place.busbw_gbs for row in by_size(run) if row.out_of_place), default=None)
    system = book.systems.get(about.system or "")
    line = system.line_rate_gbs if system else None
    message = "two nodes cannot qualify the fabric: Ring was not forced"
    if about.chosen == ("Ring",):
        message += " (NCCL chose Ring by itself at the sizes it reports, and may choose a tree at others)"
    if peak is not None and line is not None and peak > line:
        message += f", and {peak:g} GB/s is above the node's line rate of {line:g}, which is possible only with a tree"
    numbers: dict[str, float | int | str | None] = {
        "nodes": 2,
        "peak_gbs": peak,
        "line_rate_gbs": line,
        "algorithm": about.algorithm,
    }
    numbers["chosen"] = ", ".join(about.chosen) or None
    yield Finding("two-nodes", "", Verdict.UNKNOWN, message, numbers, ADVICE)
