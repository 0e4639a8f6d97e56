"""What a draft is made from: what a cluster says of itself; what may not be read says why."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.cluster.deploy.cluster_snapshot import Read
from gpuctl.cluster.environment import Object


@dataclass(frozen=True)
class Facts:
    """A cluster as its API shows it to us. `named`: what the kubeconfig calls it; `file`: what ours is to be called.

    `openshift` and `multus`: whether it serves their kinds; `usable`: the security constraints that we may use;
    `may_make`: whether we may make some.
    """

    server: str
    named: str
    namespace: str
    space: Read[Object | None]
    openshift: bool
    multus: bool
    nodes: Read[list[Object]]
    pods: Read[list[Object]]  # of all namespaces, those that are on a node
    classes: Read[list[Object]]
    claims: Read[list[Object]]
    attachments: Read[list[Object]]
    usable: tuple[str, ...] = ()
    constraints_why: str = ""  # why not all of them are known
    may_make: bool = False
    file: str = ""
