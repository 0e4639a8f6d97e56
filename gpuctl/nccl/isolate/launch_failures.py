"""Launches that never began: they accuse nobody, and it is said which nodes could not be tested, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate import advice
from gpuctl.nccl.isolate.observations import Evidence, Observation, last_never

RULE = "isolate"
MOST_CAUSES = 3


def whys(runs: Iterable[Observation]) -> str:
    """Why launches never began: the causes that are unlike, a few of them."""
    every = list(dict.fromkeys(run.start_failure for run in runs))
    more = f"; and {len(every) - MOST_CAUSES} more" if len(every) > MOST_CAUSES else ""
    return "; ".join(every[:MOST_CAUSES]) + more


def findings(evidence: Evidence, shared: bool) -> Iterator[Finding]:
    """UNKNOWN for every node that no launch began with, or began with no more; `shared`: all together are told."""
    if shared:
        return
    if evidence.failed_starts and not evidence.pairs:
        yield _finding("every node", evidence.failed_starts)
        return
    for node in evidence.untested:
        yield _finding(node, evidence.launches_by_node[node])
    for node in evidence.alive:
        if node in evidence.excluded and node not in evidence.untested:
            yield _stopped(node, [run for run in evidence.runs if run.pair and node in run.nodes])
    for run in evidence.failed_starts:
        # Both were tested with others: it may be the way between the two, and it did not keep us from testing them.
        if not set(run.nodes) & {*evidence.untested, *evidence.excluded, *evidence.lost}:
            says = f"could not be tested together: {run.start_failure}"
            yield Finding(RULE, " and ".join(run.nodes), Verdict.WARN, says, {"launches": 1}, advice.UNTESTED)


def _finding(subject: str, runs: Iterable[Observation]) -> Finding:
    runs = list(runs)
    says = f"could not be tested: {whys(runs)}"
    return Finding(RULE, subject, Verdict.UNKNOWN, says, {"launches": len(runs), "begun": 0}, advice.UNTESTED)


def _stopped(node: str, runs: Sequence[Observation]) -> Finding:
    """Of a node that launches began with at first."""
    never = last_never(runs)
    says = f"could not be tested any more, its last {len(never)} launches never began: {whys(never)}"
    numbers = {"launches": len(runs), "begun": sum(not run.start_failure for run in runs)}
    return Finding(RULE, node, Verdict.UNKNOWN, says, numbers, advice.UNTESTED)
