"""Judge a run: every rule over its rows and the messages of its ranks, never over an average.

Verdicts: FAIL is an observed fault. UNKNOWN means that the output lacks something that a run can print; the advice
names how to run it again. WARN deserves attention; it is also the verdict without a baseline, which neither passes nor
fails. OK means that the rule held, with its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpuctl.domain.findings import Finding, Verdict, worst_first
from gpuctl.nccl import context as known
from gpuctl.nccl.baselines import load
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.bandwidth import bandwidth
from gpuctl.nccl.judge.corruption import corruption
from gpuctl.nccl.judge.drop import drop
from gpuctl.nccl.judge.jitter import jitter
from gpuctl.nccl.judge.line_rate import line_rate
from gpuctl.nccl.judge.machine import machine
from gpuctl.nccl.judge.outcome import RULE as OUTCOME
from gpuctl.nccl.judge.outcome import broken_off, outcome
from gpuctl.nccl.judge.ranks import ranks
from gpuctl.nccl.judge.transport import transport
from gpuctl.nccl.judge.two_nodes import two_nodes
from gpuctl.nccl.model import Run

Rule = Callable[[Run, RunContext, Book], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    outcome,
    corruption,
    ranks,
    machine,
    transport,
    bandwidth,
    drop,
    jitter,
    line_rate,
    two_nodes,
)


def judge(run: Run, about: RunContext | None = None, book: Book | None = None) -> list[Finding]:
    """Findings of every rule, worst first; facts missing from `about` are inferred from the run.

    For a run that the user stopped only observed faults are reported. Without a book, the shipped rows and the
    site's own are loaded, which raises `InvalidInput` for an unusable file.
    """
    book = book or load.book()
    all_known = known.infer(run, about)
    findings = [finding for rule in RULES for finding in rule(run, all_known, book)]
    if broken_off(run):
        findings = [finding for finding in findings if finding.check == OUTCOME or finding.verdict is Verdict.FAIL]
    return worst_first(findings)
