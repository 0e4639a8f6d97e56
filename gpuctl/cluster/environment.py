"""One environment on one cluster, from which every object is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.cluster.clusterfile.patterns import NAME
from gpuctl.cluster.clusterfile.rules import host_too_long
from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import At, Mistakes, Node

Mode = Literal["rdma", "tcp"]
Object = dict[str, Any]

MANAGED, KIND, OWNER, PART = (f"app.kubernetes.io/{word}" for word in ("managed-by", "name", "instance", "component"))
CLUSTER, BY = "gpuctl/cluster", "gpuctl/by"
WORKER, SINGLE = "worker", "single"
CONTAINER = "ml"  # the container that training runs in


@dataclass(frozen=True)
class Environment:
    """`name` names its objects; `nodes`: the number of pods; `by`: who deploys it, or "".

    `single`: one standalone pod instead of a StatefulSet. `built`: the digest of the image that the cluster has
    built, "sha256:…"; empty if it builds none, or has not built one yet. `granted`: an admin granted constraints to the
    file's service account (OpenShift); the environment has none of its own.
    """

    cluster: Cluster
    name: str
    mode: Mode
    nodes: int
    actor: str = ""
    single: bool = False
    built: str = ""
    granted: bool = False

    @property
    def rdma(self) -> bool:
        return self.mode == "rdma"

    @property
    def openshift(self) -> bool:
        return self.cluster.cluster.flavour == "openshift"

    @property
    def namespace(self) -> str:
        return self.cluster.cluster.namespace

    @property
    def labels(self) -> dict[str, str]:
        """Labels that identify the environment's objects: destroy selects by them."""
        return {
            MANAGED: "gpuctl",
            KIND: "ml-environment",
            OWNER: self.name,
            CLUSTER: self.cluster.cluster.name,
        }

    @property
    def component(self) -> str:
        return SINGLE if self.single else WORKER

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select the pods; they must never change, because a StatefulSet's selector is immutable."""
        return {KIND: "ml-environment", OWNER: self.name, PART: self.component}

    def meta(
        self, name: str, component: str, annotations: Mapping[str, str] | None = None, *, everywhere: bool = False
    ) -> Object:
        """Return an object's metadata; `everywhere`: a cluster-wide object."""
        all_annotations = {**({BY: self.actor} if self.actor else {}), **(annotations or {})}
        return {
            "name": name,
            **({} if everywhere else {"namespace": self.namespace}),
            "labels": {**self.labels, PART: component},
            **({"annotations": all_annotations} if all_annotations else {}),
        }

    def pod_name(self, rank: int) -> str:
        return self.name if self.single else f"{self.name}-{rank}"

    def host(self, rank: int) -> str:
        """Return a pod's DNS name, valid anywhere in the cluster; without the cluster domain, which varies."""
        if self.single:
            return "localhost"
        return f"{self.pod_name(rank)}.{self.name}.{self.namespace}.svc"


@dataclass(frozen=True)
class EnvironmentRequest:
    """The choices that a command makes; the cluster file supplies the rest. `name`: the name of the objects."""

    mode: Mode | None = None
    nodes: int | None = None
    name: str = ""
    actor: str = ""
    single: bool = False


def environment(cluster: Cluster, request: EnvironmentRequest = EnvironmentRequest()) -> Environment:
    """Complete a request from the cluster file: RDMA if the file enables it, and its default number of nodes.

    A standalone pod is a separate environment, NAME-single, with its own volumes. Raises `InvalidInput` if the file
    does not allow the request.
    """
    about = cluster.cluster
    doing = f"make an environment on {about.name}"
    has_rdma = cluster.network.rdma.enabled
    if request.mode == "rdma" and not has_rdma:
        raise InvalidInput(doing, "RDMA was requested, and the cluster file does not enable it", "use --mode tcp")
    count = _nodes(cluster, request, doing)
    name = (request.name or about.environment or about.name) + (f"-{SINGLE}" if request.single else "")
    _check_name(cluster, name, doing)
    return Environment(
        cluster, name, request.mode or ("rdma" if has_rdma else "tcp"), count, request.actor, request.single
    )


def _nodes(cluster: Cluster, request: EnvironmentRequest, doing: str) -> int:
    usual = 1 if request.single else cluster.gpus.default_nodes
    count = usual if request.nodes is None else request.nodes
    named = len(cluster.nodes.gpu_nodes)
    if request.single and count != 1:
        raise InvalidInput(
            doing, f"a standalone pod is on one node, and {count} were requested", "omit one of the options"
        )
    if count < 1 or (named and count > named):
        wrong = f"{count} nodes were requested" + (f", and nodes.gpu_nodes names {named}" if named else "")
        raise InvalidInput(doing, wrong, f"use a number from 1 to {named}" if named else "use 1 or more")
    return count


def _check_name(cluster: Cluster, name: str, doing: str) -> None:
    mistakes = Mistakes()
    NAME.read(Node(name, ""), At("the environment's name", mistakes))
    wrong = mistakes.items[0].wrong if mistakes.items else host_too_long(cluster, name)
    if wrong:
        raise InvalidInput(doing, wrong, "choose another --environment")
