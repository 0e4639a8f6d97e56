"""Programs in pods that run already, for somebody else's sake: a carrier (../carriers.py) by exec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube import python
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.edges.ssh import Failure
from gpuctl.nccl.runners.mpirun import MpirunOptions
from gpuctl.remote.transport import LOOK_LIMIT_S, RunningProgram

# What the container's own environment says of the network holds for the test, too: sshd gives ranks none of it.
PASSED = ("NCCL_", "FI_", "OFI_", "UCX_", "RDMAV_")
ENV = {
    # Open MPI 4 cuts names at their first dot, and then asks ssh for the rest; 5 cuts them only to compare them.
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    # Empty is as if it were not there: what NCCL says is read, and not to go into a file of training's.
    "NCCL_DEBUG_FILE": "",
}


@dataclass(frozen=True)
class Pod:
    """A pod that takes part: `node` it runs on, `host`: how the others reach it. `uid` tells it from its successor."""

    name: str
    node: str
    host: str
    uid: str

    @property
    def label(self) -> str:
        """What a run calls it: the node is the one to be cordoned."""
        return f"{self.name} on {self.node}"


class PodTransport:
    """Pods, by their labels, whose containers have Python, nccl-tests, Open MPI and an ssh of their own.

    `selector`: what finds them in the cluster, among others.
    """

    start_options: Mapping[str, Any] = {"stop_on_input": True, "passed": PASSED}

    def __init__(self, cluster: Cluster, pods: Mapping[str, Pod], container: str, selector: Mapping[str, str]) -> None:
        self.cluster, self.pods, self.container, self.selector = cluster, pods, container, selector

    def at(self, node: str) -> python.Container:
        """The container that programs run in."""
        return python.Container(self.cluster, self.pods[node].name, self.container)

    def check(self, nodes: Sequence[str]) -> None:
        """The cluster was asked for the pods just now."""

    def address(self, node: str) -> str:
        """See Transport."""
        return self.pods[node].host

    def start(self, node: str, program: bytes) -> python.Running:
        """See Transport."""
        return python.Running(self.at(node), program)

    def query(self, node: str, program: bytes, fresh: bool = True) -> bytes | Failure:
        """See Transport; every connection is new."""
        return python.run(self.at(node), program, LOOK_LIMIT_S)

    def why(self, node: str, exit_and_error: tuple[int, str], limit_s: float) -> Failure:
        """See Transport."""
        if exit_and_error[0] == python.LOST:
            return Failure(exit_and_error[1], unreachable=True)
        return python.explain(*exit_and_error)

    def inconclusive(self, nodes: Sequence[str], started: RunningProgram, ranks_reported: bool) -> str:
        """See Transport. A connection through the API server may break for many reasons, and pods are replaced by
        others of their names, on other nodes."""
        wrong = started.wrong if isinstance(started, python.Running) else None
        return self._others(nodes) or (wrong.wrong if isinstance(wrong, Unreachable) and not ranks_reported else "")

    def _others(self, nodes: Sequence[str]) -> str:
        """Which pods are not those any more that these nodes stand for; empty where nobody can tell."""
        try:
            pods = self.cluster.find(self.cluster.kind("v1", "Pod"), self.selector)
        except GpuctlError:
            return ""
        now = {pod["metadata"]["name"]: pod for pod in pods if not pod["metadata"].get("deletionTimestamp")}
        whys = {node: _other(self.pods[node], now.get(self.pods[node].name)) for node in nodes}
        return "; ".join(f"{node}: {why}" for node, why in whys.items() if why)


def _other(pod: Pod, now: Object | None) -> str:
    if now is None:
        return "the pod is gone, or about to go"
    if now["metadata"]["uid"] != pod.uid:
        return f"another pod has its name now, on {now['spec'].get('nodeName') or 'no node yet'}"
    return ""


def pod_options(options: MpirunOptions) -> MpirunOptions:
    """The same for pods; mpirun may run as root there, as the whole pod may."""
    return MpirunOptions(options.search_path, False, True, options.ssh_args, options.save_output, ENV)
