"""Findings about launches that never started: which nodes cannot be tested, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate import advice
from gpuctl.nccl.isolate.observations import Evidence, Observation

RULE = "isolate"
MOST_CAUSES = 3


def failed_starts_since(launches: Sequence[Observation]) -> list[Observation]:
    """The failed starts since the last successful one, the latest first."""
    return list(takewhile(lambda run: run.start_failure, reversed(launches)))


def reasons(runs: Iterable[Observation]) -> str:
    """The distinct reasons why launches did not start, at most MOST_CAUSES of them."""
    every = list(dict.fromkeys(run.start_failure for run in runs))
    more = f"; and {len(every) - MOST_CAUSES} more" if len(every) > MOST_CAUSES else ""
    return "; ".join(every[:MOST_CAUSES]) + more


def findings(evidence: Evidence, shared: bool) -> Iterator[Finding]:
    """UNKNOWN for every node on which no launch started, or none starts any more.

    `shared`: another finding already covers all nodes together, so none follows here.
    """
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
        # Both nodes were tested with others, so this may be the connection between the two, and is a warning only.
        if not set(run.nodes) & {*evidence.untested, *evidence.excluded, *evidence.lost}:
            message = f"could not be tested together: {run.start_failure}"
            yield Finding(RULE, " and ".join(run.nodes), Verdict.WARN, message, {"launches": 1}, advice.UNTESTED)


def _finding(subject: str, runs: Iterable[Observation]) -> Finding:
    runs = list(runs)
    message = f"could not be tested: {reasons(runs)}"
    return Finding(RULE, subject, Verdict.UNKNOWN, message, {"launches": len(runs), "started": 0}, advice.UNTESTED)


def _stopped(node: str, runs: Sequence[Observation]) -> Finding:
    """The finding about a node on which launches started at first."""
    failed = failed_starts_since(runs)
    message = f"could not be tested any more, its last {len(failed)} launches never started: {reasons(failed)}"
    numbers = {"launches": len(runs), "started": sum(not run.start_failure for run in runs)}
    return Finding(RULE, node, Verdict.UNKNOWN, message, numbers, advice.UNTESTED)
