"""NCCL tests on the cluster of a cluster file: in the environment's pods if it is deployed, because they hold the GPUs,
else in pods created as the file describes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpuctl.cluster.clusterfile import locate, variables
from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.deploy import deployed_state, flow
from gpuctl.cluster.environment import CONTAINER, Environment, EnvironmentRequest, environment
from gpuctl.cluster.manifests import build
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.domain.pod_status import is_ready
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.nccl.runners.kube import nodes as kube_nodes
from gpuctl.nccl.runners.kube.exec_transport import Pod, PodTransport
from gpuctl.nccl.runners.kube.model import Settings

ROOT = 0
OURS = "NCCL_DEBUG"  # prefix of the variables that a test sets itself, whatever training is to print


def file_of(name: str) -> File:
    """Find the cluster file of a name or path."""
    return locate.cluster(name)


@dataclass(frozen=True)
class Place:
    """Environment on its cluster. `count`: number of its pods; None if it is not deployed."""

    cluster: Cluster
    env: Environment
    count: int | None

    @property
    def file(self) -> File:
        return self.env.cluster

    @property
    def where(self) -> str:
        """Name of this place in the run history."""
        name = self.file.cluster.name
        return f"{self.cluster.server} {name}" + (f"/{self.env.name}" if self.env.name != name else "")

    @cached_property
    def pods(self) -> tuple[dict[str, Pod], dict[str, str]]:
        """Ready pods by their labels in a run, in rank order; and the other pods with the reason."""
        live = {
            pod["metadata"]["name"]: pod for pod in self.cluster.find(self.cluster.kind("v1", "Pod"), self.env.selector)
        }
        ready, others = dict[str, Pod](), dict[str, str]()
        for rank in range(self.count or 0):
            name = self.env.pod_name(rank)
            if why := _why_not(live.get(name)):
                others[name] = why
            else:
                meta, node = live[name]["metadata"], str(live[name]["spec"]["nodeName"])
                pod = Pod(name, node, self.env.host(rank), str(meta["uid"]))
                ready[pod.label] = pod
        return ready, others


def place(name: str, environment_name: str, context: str) -> Place:
    """Locate the environment of a cluster file; `InvalidInput` if the kubeconfig points to another cluster."""
    file = file_of(name)
    env = environment(file, EnvironmentRequest(name=environment_name))
    cluster = flow.connect(file, context)
    return Place(cluster, env, deployed_state.nodes(cluster, env))


def _why_not(pod: Object | None) -> str:
    if pod is None:
        return "it does not exist"
    if pod["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    return "" if is_ready(pod) else "it is not ready: `gpuctl cluster status` shows why"


def chosen(at: Place, named: str) -> dict[str, Pod]:
    """Pods that --nodes names, by pod or node and in its order; all ready pods if it names none."""
    ready, others = at.pods
    doing = f"run NCCL tests in the pods of {at.env.name}"
    if not ready:
        why = "; ".join(f"{name}: {why}" for name, why in list(others.items())[:4]) or "it has none"
        raise GpuctlError(doing, f"no pod is ready: {why}", f"check `gpuctl cluster status {at.file.cluster.name}`")
    label_of = {name: label for label, pod in ready.items() for name in (pod.name, pod.node, label)}
    requested = [name.strip() for name in named.split(",") if name.strip()]
    if unknown := [name for name in requested if name not in label_of]:
        why = "; ".join(f"{name}: {others.get(name, 'neither a pod nor the node of one')}" for name in unknown)
        raise InvalidInput(doing, why, f"pods that are ready: {', '.join(list(ready)[:32])}")
    labels = [label_of[name] for name in requested] or list(ready)
    if len(set(labels)) < len(labels):
        raise InvalidInput(doing, "--nodes names a pod twice", "list each one once")
    return {label: ready[label] for label in labels}


def transport(at: Place, pods: Mapping[str, Pod]) -> PodTransport:
    """Transport into these pods."""
    return PodTransport(at.cluster, pods, CONTAINER, at.env.selector)


def racks(at: Place, pods: Mapping[str, Pod], label: str) -> dict[str, str] | None:
    """Pod -> rack of its node, for nodes with a rack label; None if nodes may not be listed."""
    try:
        nodes = at.cluster.find(at.cluster.kind("v1", "Node"), {})
    except Forbidden:
        return None
    known = kube_nodes.racks(nodes, label)
    return {name: known[pod.node] for name, pod in pods.items() if pod.node in known}


# ---- environments that are not deployed -----------------------------------------------------------------------------


def settings(at: Place) -> Settings:
    """Settings of pods created for a test, like those of the environment; `InvalidInput` if they cannot be alike."""
    file, env = at.file, at.env
    rdma, room, security = file.network.rdma, file.resources, file.security
    if env.rdma and rdma.host_network:
        wrong = "network.rdma.host_network: pods created for a test do not use the node's network"
        raise InvalidInput("run NCCL tests in new pods", wrong, "`gpuctl cluster deploy` first")
    pages = {"hugepages-2Mi": room.hugepages_2mi} if room.hugepages_2mi else {}
    fabric = {**{name: str(count) for name, count in rdma.resources.items()}, **pages} if env.rdma else {}
    return Settings(
        image=build.reference(env),
        gpu=file.gpus.resource,
        fabric=fabric,
        cpu=room.cpu,
        memory=room.memory,
        shm=room.shm,
        user=ROOT if env.rdma and security.rdma_as_root else security.run_as_user or Settings.user,
        service_account=security.service_account,
        pull_secret=file.image.pull_secret,
        networks=",".join(rdma.attachments) if env.rdma else "",
        tolerations=file.nodes.tolerations,
    )


def allowed_nodes(at: Place) -> Collection[str] | None:
    """Nodes that the file allows; None for all."""
    nodes = at.file.nodes
    if not nodes.selector:
        return nodes.gpu_nodes or None
    labelled = at.cluster.find(at.cluster.kind("v1", "Node"), nodes.selector)
    names = [kube_nodes.name_of(node) for node in labelled]
    return [name for name in names if name in nodes.gpu_nodes] if nodes.gpu_nodes else names


def variables_of(at: Place) -> dict[str, str]:
    """Network variables of the file, which pods created for a test lack."""
    return {
        variable.name: variable.value
        for variable in variables.all_of(at.file, at.env.mode)
        if not variable.name.startswith(OURS)
    }
