"""Empty drained nodes: evict pods within PodDisruptionBudgets, or wait for Slurm's jobs; nothing is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.core.text import named
from gpuctl.domain import pod_eviction
from gpuctl.domain.kube_errors import BudgetForbids, Conflict, NotACluster, NotFound, NotLoggedIn
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.workflows.nodes_drain import Drain, Nodes

POLL_S = 5.0
IN_USE = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "ALLOC", "MIX", "COMP"})  # of a node with jobs
DRAINED = ("done", "others")
RETURNS = 2  # pods of a controller; the scheduler may just have bound one when the node was cordoned
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


@dataclass
class _Work:
    """`ends`: node -> why it is not empty, of those whose step has ended."""

    patience: Patience
    ends: dict[str, str]


def losses(nodes: Nodes, drains: Sequence[Drain], patience: Patience) -> dict[str, str]:
    """Node -> pods and data that a drain would lose, for nodes with some; before anything is done."""
    rows = {}
    for one in drains:
        if nodes.cluster is not None and one.live is not None:
            rows[one.node] = "; ".join(patience.losses(_pods(nodes.cluster, one)))
    return {node: text for node, text in rows.items() if text}


def empty(nodes: Nodes, drains: Sequence[Drain], patience: Patience, on_wait: OnWait) -> dict[str, str]:
    """Wait until no pod or job is left on these nodes; return node -> why it is not empty, "" if it is.

    A node that is not drained any more, or that is not found, is not empty.
    """
    end = time.monotonic() + patience.limit_s
    left, ends, shown = [one.node for one in drains], dict[str, str](), dict[str, str]()
    work, arrivals = _Work(patience, ends), {node: _Arrivals() for node in left}
    while left:
        late = time.monotonic() > end
        cluster = nodes.cluster
        waits = _on_slurm(nodes, left, ends) if cluster is None else _on_kube(nodes, cluster, left, arrivals, work)
        for node, text in waits.items():
            if not text:
                ends[node] = ""
            elif late:
                ends[node] = f"after {patience.limit_s:g} s: {text}"
            elif shown.get(node) != text:
                shown[node] = text
                on_wait(node, text)
        left = [node for node in left if node not in ends]
        time.sleep(POLL_S if left else 0)
    return ends


def occupied(nodes: Nodes, names: Sequence[str]) -> dict[str, str]:
    """Node -> why it must not be disturbed now: not drained, or in use; "" if it may. Nothing is evicted."""
    rows = {}
    for one in nodes.read(dict.fromkeys(names, "empty"), undo=False):
        wrong = _not_drained(one)
        if not wrong and nodes.cluster is None:
            wrong = _jobs(one)
        elif not wrong and nodes.cluster is not None:
            wrong = named([f"pod {pod_eviction.name(pod)} runs there" for pod in _pods(nodes.cluster, one)], 4)
        rows[one.node] = wrong
    return rows


def _not_drained(drain: Drain) -> str:
    if drain.state == "due":
        return "somebody has taken back its drain meanwhile"
    return "" if drain.state in DRAINED else f"its drain is {drain.state}: {drain.text}"


@dataclass
class _Arrivals:
    """Pods that came to a drained node after its first list. `first`: uids of that list, None before it."""

    first: set[str] | None = None
    later: dict[str, set[str]] = field(default_factory=dict)  # uid of a controller -> uids of its pods

    def returned(self, pods: Sequence[Object]) -> str:
        """A pod that tolerates the cordon, so that evictions would go on for ever; "" without one."""
        if self.first is None:
            self.first = {pod["metadata"]["uid"] for pod in pods}
        for pod in pods:
            if pod["metadata"]["uid"] not in self.first:
                same = self.later.setdefault(pod_eviction.owner(pod), set())
                same.add(pod["metadata"]["uid"])
                if len(same) >= RETURNS:
                    return f"pod {pod_eviction.name(pod)} came after others of its controller: it tolerates the cordon"
        return ""


def _on_slurm(nodes: Nodes, left: Sequence[str], ends: dict[str, str]) -> dict[str, str]:
    """Node -> its jobs, as its state shows them."""
    waits = {}
    for one in nodes.read(dict.fromkeys(left, "empty"), undo=False):
        if one.state == "due":
            ends[one.node] = _not_drained(one)
        else:
            waits[one.node] = _jobs(one)
    return waits


def _jobs(drain: Drain) -> str:
    if not drain.slurm_state:
        return f"its state is unknown: {drain.text}"
    words = {word.rstrip("*~#!%$@^-") for word in drain.slurm_state.split("+")}
    return f"jobs run there: Slurm has it {drain.slurm_state}" if words & IN_USE else ""


def _on_kube(
    nodes: Nodes, cluster: Cluster, left: Sequence[str], arrivals: Mapping[str, _Arrivals], work: _Work
) -> dict[str, str]:
    """Node -> pods that it waits for, after a request to evict each."""
    waits: dict[str, str] = {}
    try:
        drains = nodes.read(dict.fromkeys(left, "empty"), undo=False)
    except GpuctlError as error:
        return _late(error, left, work)
    for drain in drains:
        if wrong := _not_drained(drain):
            work.ends[drain.node] = wrong
            continue
        try:
            pods = _pods(cluster, drain)
            lost = work.patience.losses([pod for pod in pods if not pod_eviction.is_leaving(pod)])
            if wrong := "; ".join(lost) or arrivals[drain.node].returned(pods):
                work.ends[drain.node] = wrong
                continue
            waits[drain.node] = named([_evicted(cluster, pod) for pod in pods], 4)
        except GpuctlError as error:
            waits |= _late(error, [drain.node], work)
    return waits


def _late(error: GpuctlError, nodes: Sequence[str], work: _Work) -> dict[str, str]:
    """Node -> what it waits for while the cluster does not answer; any other error ends the node's step."""
    text = f"{error.doing}: {error.wrong}"
    if isinstance(error, Unreachable) and not isinstance(error, NotLoggedIn | NotACluster):
        return dict.fromkeys(nodes, text)
    work.ends.update(dict.fromkeys(nodes, text))
    return {}


def _evicted(cluster: Cluster, pod: Object) -> str:
    """Why the pod may still be here; that it is gone shows the next list."""
    if pod_eviction.is_leaving(pod):
        return f"pod {pod_eviction.name(pod)} is terminating"
    try:
        cluster.evict(pod)
    except (NotLoggedIn, NotACluster):
        raise
    except (BudgetForbids, Unreachable) as error:
        return f"pod {pod_eviction.name(pod)}: {error.wrong}"
    except NotFound:
        return f"pod {pod_eviction.name(pod)} is not found"
    except Conflict:
        return f"pod {pod_eviction.name(pod)} was replaced"
    return f"pod {pod_eviction.name(pod)} is terminating"


def _pods(cluster: Cluster, drain: Drain) -> list[Object]:
    """Pods of the node that a drain moves away."""
    name = drain.live["metadata"]["name"] if drain.live else drain.node
    pods = cluster.find_everywhere(cluster.kind("v1", "Pod"), f"spec.nodeName={name}")
    return [pod for pod in pods if not pod_eviction.stays(pod)]
