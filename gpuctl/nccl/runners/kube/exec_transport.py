"""Transport into existing pods by exec (see gpuctl/remote/transport.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube import python
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.edges.ssh import Failure
from gpuctl.nccl.runners.mpirun import MpirunOptions
from gpuctl.remote.transport import PROBE_LIMIT_S, RunningProgram

# Prefixes of the container's variables that apply to the test, too: sshd passes none of them to ranks.
PASSED = ("NCCL_", "FI_", "OFI_", "UCX_", "RDMAV_")
ENV = {
    # Open MPI 4 cuts names at their first dot, also for ssh; 5 cuts them only to compare them.
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    # Empty counts as unset: NCCL's output is to be read, not written into a file of the training.
    "NCCL_DEBUG_FILE": "",
}


@dataclass(frozen=True)
class Pod:
    """Pod of a test. `node`: its node; `host`: its name for other pods; `uid` distinguishes it from a successor."""

    name: str
    node: str
    host: str
    uid: str

    @property
    def label(self) -> str:
        """Name of the pod in a run: it contains the node, which is to be cordoned if it is bad."""
        return f"{self.name} on {self.node}"


class PodTransport:
    """Transport to pods, by their labels, whose containers have Python, nccl-tests, Open MPI and ssh.

    `selector`: labels that select the pods in the cluster, possibly with others.
    """

    start_options: Mapping[str, Any] = {"stop_on_input": True, "passed": PASSED}

    def __init__(self, cluster: Cluster, pods: Mapping[str, Pod], container: str, selector: Mapping[str, str]) -> None:
        self.cluster, self.pods, self.container, self.selector = cluster, pods, container, selector

    def at(self, node: str) -> python.Container:
        """Container that programs run in."""
        return python.Container(self.cluster, self.pods[node].name, self.container)

    def check(self, nodes: Sequence[str]) -> None:
        """Nothing to check: the pods were just listed."""

    def address(self, node: str) -> str:
        """See Transport."""
        return self.pods[node].host

    def start(self, node: str, program: bytes) -> python.Running:
        """See Transport."""
        return python.Running(self.at(node), program)

    def query(self, node: str, program: bytes, fresh: bool = True) -> bytes | Failure:
        """See Transport; every connection is new."""
        return python.run(self.at(node), program, PROBE_LIMIT_S)

    def why(self, node: str, exit_and_error: tuple[int, str], limit_s: float) -> Failure:
        """See Transport."""
        if exit_and_error[0] == python.LOST:
            return Failure(exit_and_error[1], unreachable=True)
        return python.explain(*exit_and_error)

    def inconclusive(self, nodes: Sequence[str], started: RunningProgram, ranks_reported: bool) -> str:
        """See Transport. A connection through the API server can break for many reasons, and pods may be replaced by
        others of the same name on other nodes."""
        wrong = started.wrong if isinstance(started, python.Running) else None
        return self._others(nodes) or (wrong.wrong if isinstance(wrong, Unreachable) and not ranks_reported else "")

    def _others(self, nodes: Sequence[str]) -> str:
        """Describe pods that no longer exist or were replaced; empty if the pods cannot be listed."""
        try:
            pods = self.cluster.find(self.cluster.kind("v1", "Pod"), self.selector)
        except GpuctlError:
            return ""
        now = {pod["metadata"]["name"]: pod for pod in pods if not pod["metadata"].get("deletionTimestamp")}
        whys = {node: _other(self.pods[node], now.get(self.pods[node].name)) for node in nodes}
        return "; ".join(f"{node}: {why}" for node, why in whys.items() if why)


def _other(pod: Pod, now: Object | None) -> str:
    if now is None:
        return "the pod is deleted or being deleted"
    if now["metadata"]["uid"] != pod.uid:
        return f"another pod has its name now, on {now['spec'].get('nodeName') or 'no node yet'}"
    return ""


def pod_options(options: MpirunOptions) -> MpirunOptions:
    """Options for pods: mpirun may run as root, like everything in the pod."""
    return MpirunOptions(
        options.search_path, as_root=True, ssh_args=options.ssh_args, save_output=options.save_output, env=ENV
    )
