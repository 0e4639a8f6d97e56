"""machine: the ranks' GPUs are those of the machine type; else it is judged by another one's limits."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.consistency import other_gpus
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import names
from gpuctl.nccl.model import Run

RULE = "machine"
ADVICE = "set the type of these machines with --instance; `gpuctl nccl baselines list` shows those that are known"


def machine(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    for contradiction in other_gpus(run, about.system, book):
        numbers = {"system": about.system, "expected": names(book.gpus(about.system or ""))}
        yield Finding(RULE, "", Verdict.UNKNOWN, contradiction, numbers, ADVICE)
