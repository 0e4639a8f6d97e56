"""ranks: a run proves something about a fabric only if it has several ranks, each with its own GPU.

A rank alone exchanges nothing: its bus bandwidth is 0 by definition, and its values cannot be wrong. Ranks that share
a GPU measure its memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import Numbers, halves, names, plural
from gpuctl.nccl.model import Rank, Run

RULE = "ranks"
ONE = "run it on two GPUs or more (-g 2, or several processes); a program built without MPI=1 is one rank each time"
SHARED = "give every rank its own GPU: check CUDA_VISIBLE_DEVICES, the slots of each host, and that hosts have names"


def ranks(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    if run.rows and (about.ranks == 1 or _idle(run)):
        message = "the run has one rank: nothing was exchanged, so it proves nothing about NVLink or the network"
        yield Finding(RULE, "", Verdict.UNKNOWN, message, {"ranks": 1}, ONE)
    for (host, bus_id), sharing in _shared(run).items():
        numbers: Numbers = {"ranks": len(sharing), "bus_id": bus_id}
        who = names(str(one.rank) for one in sharing)
        message = f"{plural(len(sharing), 'rank')} ({who}) share one GPU on {host}, {bus_id}: no test of the fabric"
        yield Finding(RULE, host, Verdict.UNKNOWN, message, numbers, SHARED)


def _idle(run: Run) -> bool:
    """True if every bus bandwidth is 0 although data was moved, as the factor of one rank makes it."""
    timings = [half for row in run.rows for _, half in halves(row)]
    return any(one.algbw_gbs >= 1 for one in timings) and all(one.busbw_gbs == 0 for one in timings)


def _shared(run: Run) -> dict[tuple[str, str], list[Rank]]:
    """GPUs that several ranks are listed on, by host and PCI address."""
    by_gpu = defaultdict[tuple[str, str], list[Rank]](list)
    for rank in run.ranks:
        if rank.bus_id:
            by_gpu[rank.host or "one host", rank.bus_id].append(rank)
    return {gpu: sharing for gpu, sharing in by_gpu.items() if len(sharing) > 1}
