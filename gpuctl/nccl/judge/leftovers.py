"""What launches may have left behind: what they measured stands, and so may they."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.core import text
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.model import LaunchResult

RULE = "left-over"
ON_NODES = "look there for processes of nccl-tests before the next job, or restart the node"
IN_CLUSTER = "`gpuctl nccl clean` removes what you may delete, once the time of the run is over"


def findings(ended: Sequence[LaunchResult]) -> Iterator[Finding]:
    """On which nodes something may still run, of each launch; and what stays in the cluster, of all together."""
    for end in ended:
        if end.lost:
            says = "cannot say that nothing of the run is left there"
            yield Finding(RULE, ", ".join(end.lost), Verdict.UNKNOWN, says, {"nodes": len(end.lost)}, ON_NODES)
    yield from in_cluster(ended)


def in_cluster(ended: Sequence[LaunchResult]) -> Iterator[Finding]:
    """What could not be removed: one finding, in the words of the first, as the others mostly have the same."""
    left = [end for end in ended if end.left and not end.lost]
    if left:
        first, more = left[0], len(left) - 1
        says = first.left + (f"; and so of {more} more launch{'es' if more > 1 else ''}" if more else "")
        yield Finding(RULE, text.named(first.launch.nodes), Verdict.UNKNOWN, says, {"launches": len(left)}, IN_CLUSTER)
