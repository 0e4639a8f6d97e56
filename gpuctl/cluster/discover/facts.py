"""Facts of a cluster for a draft; what may not be read carries the reason."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.environment import Object


@dataclass(frozen=True)
class Facts:
    """A cluster as its API shows it. `named`: its name in the kubeconfig; `file`: the name of the drafted file.

    `openshift` and `multus`: their kinds are served; `usable`: the security constraints that we may use;
    `may_make`: we may create some.
    """

    server: str
    named: str
    namespace: str
    space: Maybe[Object | None]
    openshift: bool
    multus: bool
    nodes: Maybe[list[Object]]
    pods: Maybe[list[Object]]  # of all namespaces, those scheduled to a node
    classes: Maybe[list[Object]]
    claims: Maybe[list[Object]]
    attachments: Maybe[list[Object]]
    usable: tuple[str, ...] = ()
    constraints_why: str = ""  # the reason if not all of them are known
    may_make: bool = False
    file: str = ""
