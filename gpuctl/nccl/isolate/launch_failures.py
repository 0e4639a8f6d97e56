"""Launches that never began: they accuse nobody, and it is said which nodes could not be tested, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.isolate import advice
from gpuctl.nccl.isolate.observations import Seen, Story, last_never

RULE = "isolate"
MOST_CAUSES = 3


def whys(runs: Iterable[Seen]) -> str:
    """Why launches never began: the causes that are unlike, a few of them."""
    every = list(dict.fromkeys(seen.never for seen in runs))
    more = f"; and {len(every) - MOST_CAUSES} more" if len(every) > MOST_CAUSES else ""
    return "; ".join(every[:MOST_CAUSES]) + more


def findings(story: Story, shared: bool) -> Iterator[Finding]:
    """UNKNOWN for every node that no launch began with, or began with no more; `shared`: all together are told."""
    if shared:
        return
    if story.never and not story.pairs:
        yield _finding("every node", story.never)
        return
    for node in story.untested:
        yield _finding(node, story.tried[node])
    for node in story.alive:
        if node in story.shut and node not in story.untested:
            yield _stopped(node, [seen for seen in story.all if seen.pair and node in seen.nodes])
    for seen in story.never:
        # Both were tested with others: it may be the way between the two, and it did not keep us from testing them.
        if not set(seen.nodes) & {*story.untested, *story.shut, *story.lost}:
            says = f"could not be tested together: {seen.never}"
            yield Finding(RULE, " and ".join(seen.nodes), Verdict.WARN, says, {"launches": 1}, advice.UNTESTED)


def _finding(subject: str, runs: Iterable[Seen]) -> Finding:
    runs = list(runs)
    says = f"could not be tested: {whys(runs)}"
    return Finding(RULE, subject, Verdict.UNKNOWN, says, {"launches": len(runs), "begun": 0}, advice.UNTESTED)


def _stopped(node: str, runs: Sequence[Seen]) -> Finding:
    """Of a node that launches began with at first."""
    never = last_never(runs)
    says = f"could not be tested any more, its last {len(never)} launches never began: {whys(never)}"
    numbers = {"launches": len(runs), "begun": sum(not seen.never for seen in runs)}
    return Finding(RULE, node, Verdict.UNKNOWN, says, numbers, advice.UNTESTED)
