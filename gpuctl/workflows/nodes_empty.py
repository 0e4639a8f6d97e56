"""Empty drained nodes: evict pods within PodDisruptionBudgets, or wait for Slurm's jobs; nothing is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.core.text import named
from gpuctl.domain import pod_eviction
from gpuctl.domain.kube_errors import BudgetForbids, Conflict, NotFound
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.workflows.nodes_drain import Drain, Nodes

POLL_S = 5.0
IN_USE = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "ALLOC", "MIX", "COMP"})  # of a node with jobs
OnWait = Callable[[str, str], None]  # node, what it waits for


@dataclass(frozen=True)
class Patience:
    """`limit_s`: until nodes must be empty. `bare_pods`, `emptydir_data`: see `pod_eviction.loss`."""

    limit_s: float = 3600.0
    bare_pods: bool = False
    emptydir_data: bool = False

    def losses(self, pods: Sequence[Object]) -> list[str]:
        """Pods and data that evictions would lose without consent."""
        rows = [pod_eviction.loss(pod, bare_pods=self.bare_pods, emptydir_data=self.emptydir_data) for pod in pods]
        return [row for row in rows if row]


def losses(nodes: Nodes, drains: Sequence[Drain], patience: Patience) -> dict[str, str]:
    """Node -> pods and data that a drain would lose, for nodes with some; before anything is done."""
    rows = {}
    for one in drains:
        if nodes.cluster is not None and one.live is not None:
            rows[one.node] = "; ".join(patience.losses(_pods(nodes.cluster, one)))
    return {node: text for node, text in rows.items() if text}


def empty(nodes: Nodes, drains: Sequence[Drain], patience: Patience, on_wait: OnWait) -> dict[str, str]:
    """Wait until no pod or job is left on these nodes; return node -> why it is not empty, "" if it is."""
    end = time.monotonic() + patience.limit_s
    left, ends, shown = {one.node: one for one in drains}, dict[str, str](), dict[str, str]()
    while left:
        late = time.monotonic() > end
        waits = _on_kube(nodes.cluster, left, patience, ends) if nodes.cluster is not None else _on_slurm(nodes, left)
        for node, text in waits.items():
            if not text:
                ends[node] = ""
            elif late:
                ends[node] = f"after {patience.limit_s:g} s: {text}"
            elif shown.get(node) != text:
                shown[node] = text
                on_wait(node, text)
        left = {node: one for node, one in left.items() if node not in ends}
        time.sleep(POLL_S if left else 0)
    return ends


def _on_slurm(nodes: Nodes, left: dict[str, Drain]) -> dict[str, str]:
    """Node -> its jobs, as its state shows them."""
    return {one.node: _jobs(one) for one in nodes.read(dict.fromkeys(left, "empty"), undo=False)}


def _jobs(drain: Drain) -> str:
    if not drain.slurm_state:
        return f"its state is unknown: {drain.text}"
    words = {word.rstrip("*~#!%$@^-") for word in drain.slurm_state.split("+")}
    return f"jobs run there: Slurm has it {drain.slurm_state}" if words & IN_USE else ""


def _on_kube(cluster: Cluster, left: dict[str, Drain], patience: Patience, ends: dict[str, str]) -> dict[str, str]:
    """Node -> pods that it waits for, after a request to evict each; `ends`: of nodes whose pods cannot be evicted."""
    waits = {}
    for node, drain in left.items():
        pods = _pods(cluster, drain)
        lost = patience.losses([pod for pod in pods if not pod_eviction.is_leaving(pod)])
        if lost:
            ends[node] = "; ".join(lost)
            continue
        try:
            waits[node] = named([text for pod in pods if (text := _evicted(cluster, pod))], 4)
        except Unreachable:
            raise
        except GpuctlError as error:
            ends[node] = f"{error.doing}: {error.wrong}"
    return waits


def _evicted(cluster: Cluster, pod: Object) -> str:
    """Why the pod is still here; "" once it is gone."""
    if pod_eviction.is_leaving(pod):
        return f"pod {pod_eviction.name(pod)} is terminating"
    try:
        cluster.evict(pod)
    except BudgetForbids as error:
        return f"pod {pod_eviction.name(pod)}: {error.wrong}"
    except NotFound:
        return ""
    except Conflict:
        return f"pod {pod_eviction.name(pod)} was replaced"
    return f"pod {pod_eviction.name(pod)} is terminating"


def _pods(cluster: Cluster, drain: Drain) -> list[Object]:
    """Pods of the node that a drain moves away."""
    name = drain.live["metadata"]["name"] if drain.live else drain.node
    pods = cluster.find_everywhere(cluster.kind("v1", "Pod"), f"spec.nodeName={name}")
    return [pod for pod in pods if not pod_eviction.stays(pod)]
