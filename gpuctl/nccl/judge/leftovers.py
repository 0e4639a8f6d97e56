"""Findings about leftovers of launches: processes on nodes, objects in the cluster. Their measurements still count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.core import text
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.model import LaunchResult

RULE = "left-over"
ON_NODES = "check the nodes for processes of nccl-tests before the next job, or restart the node"
IN_CLUSTER = "`gpuctl nccl clean` removes what you may delete, once the time limit of the run is over"


def findings(results: Sequence[LaunchResult]) -> Iterator[Finding]:
    """One finding per launch about nodes on which processes may still run; one about all objects in the cluster."""
    for result in results:
        if result.lost:
            message = "processes of the run may still exist there: the cleanup got no answer"
            yield Finding(RULE, ", ".join(result.lost), Verdict.UNKNOWN, message, {"nodes": len(result.lost)}, ON_NODES)
    yield from in_cluster(results)


def in_cluster(results: Sequence[LaunchResult]) -> Iterator[Finding]:
    """One finding about all objects that could not be removed. It quotes the first, as the others mostly equal it."""
    left = [result for result in results if result.left and not result.lost]
    if left:
        first, more = left[0], len(left) - 1
        message = first.left + (f"; the same for {more} more launch{'es' if more > 1 else ''}" if more else "")
        nodes = text.named(first.launch.nodes)
        yield Finding(RULE, nodes, Verdict.UNKNOWN, message, {"launches": len(left)}, IN_CLUSTER)
