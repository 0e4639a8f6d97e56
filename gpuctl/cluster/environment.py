"""One environment on one cluster: what every object is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpuctl.cluster.clusterfile.model import Cluster
from gpuctl.cluster.clusterfile.patterns import NAME
from gpuctl.core.errors import InvalidInput
from gpuctl.core.strict_yaml import At, Mistakes, Node

Mode = Literal["rdma", "tcp"]
Object = dict[str, Any]

MANAGED, KIND, OWNER, PART = (f"app.kubernetes.io/{word}" for word in ("managed-by", "name", "instance", "component"))
CLUSTER, BY = "gpuctl/cluster", "gpuctl/by"
WORKER, SINGLE = "worker", "single"
CONTAINER = "ml"  # the one that training runs in
MOST_OF_A_HOST = 63  # characters in the first part of a name in DNS


@dataclass(frozen=True)
class Environment:
    """`name` is what its objects are called; `nodes`: how many pods; `by`: who deploys it, empty where nobody does.

    `single`: not pods of a StatefulSet but one pod that stands alone. `built`: the digest of the image that the cluster
    has built, "sha256:…"; empty where it builds none, or none is there yet.
    """

    cluster: Cluster
    name: str
    mode: Mode
    nodes: int
    by: str = ""
    single: bool = False
    built: str = ""

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
        """What every object of the environment has, and nothing else has: destroy goes by it."""
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
        """The labels that find the pods; never to change, for a StatefulSet's cannot be changed."""
        return {KIND: "ml-environment", OWNER: self.name, PART: self.component}

    def meta(
        self, name: str, component: str, annotations: Mapping[str, str] | None = None, *, everywhere: bool = False
    ) -> Object:
        """An object's metadata; `everywhere`: it belongs to no namespace."""
        told = {**({BY: self.by} if self.by else {}), **(annotations or {})}
        return {
            "name": name,
            **({} if everywhere else {"namespace": self.namespace}),
            "labels": {**self.labels, PART: component},
            **({"annotations": told} if told else {}),
        }

    def pod_name(self, rank: int) -> str:
        return self.name if self.single else f"{self.name}-{rank}"

    def host(self, rank: int) -> str:
        """A pod's name in DNS, from anywhere in the cluster; without the cluster's own domain, which may be any."""
        if self.single:
            return "localhost"
        return f"{self.pod_name(rank)}.{self.name}.{self.namespace}.svc"


@dataclass(frozen=True)
class Asked:
    """What somebody asks for; the cluster file says the rest. `name`: what the objects are to be called."""

    mode: Mode | None = None
    nodes: int | None = None
    name: str = ""
    by: str = ""
    single: bool = False


def environment(cluster: Cluster, asked: Asked = Asked()) -> Environment:
    """What is asked for, filled up from the cluster file: RDMA where it has it, and its usual number of nodes.

    One pod that stands alone is an environment of its own: NAME-single, with volumes of its own. `InvalidInput` if the
    file does not allow it.
    """
    about = cluster.cluster
    doing = f"make an environment on {about.name}"
    has_rdma = cluster.network.rdma.enabled
    if asked.mode == "rdma" and not has_rdma:
        raise InvalidInput(doing, "RDMA was asked for, and the cluster file does not enable it", "use --mode tcp")
    count = _nodes(cluster, asked, doing)
    name = (asked.name or about.environment or about.name) + (f"-{SINGLE}" if asked.single else "")
    _check_name(cluster, name, doing)
    return Environment(cluster, name, asked.mode or ("rdma" if has_rdma else "tcp"), count, asked.by, asked.single)


def _nodes(cluster: Cluster, asked: Asked, doing: str) -> int:
    usual = 1 if asked.single else cluster.gpus.default_nodes
    count = usual if asked.nodes is None else asked.nodes
    named = len(cluster.nodes.gpu_nodes)
    if asked.single and count != 1:
        raise InvalidInput(
            doing, f"a pod that stands alone is on one node, and {count} were asked for", "leave one out"
        )
    if count < 1 or (named and count > named):
        wrong = f"{count} nodes were asked for" + (f", and nodes.gpu_nodes names {named}" if named else "")
        raise InvalidInput(doing, wrong, f"give a number from 1 to {named}" if named else "give 1 or more")
    return count


def _check_name(cluster: Cluster, name: str, doing: str) -> None:
    mistakes = Mistakes()
    NAME.read(Node(name, ""), At("the environment's name", mistakes))
    wrong = mistakes.items[0].wrong if mistakes.items else too_long(cluster, name)
    if wrong:
        raise InvalidInput(doing, wrong, "give another --environment")


def too_long(cluster: Cluster, name: str) -> str:
    """What is wrong with the hosts of an environment's Routes, which OpenShift makes; empty where nothing is."""
    about = cluster.cluster
    for port in cluster.ports.expose if about.flavour == "openshift" else ():
        host = f"{name}-{port}-{about.namespace}"
        if len(host) > MOST_OF_A_HOST:
            return f"makes the Route's host {host}, which is {len(host)} characters long; DNS takes {MOST_OF_A_HOST}"
    return ""
