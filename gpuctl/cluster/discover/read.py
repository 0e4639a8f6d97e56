"""Ask a cluster for all that a cluster file needs, at once."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from gpuctl.cluster.deploy.cluster_snapshot import AT_ONCE, ATTACHMENT, LIVE_PODS, SCC, Asking, Read
from gpuctl.cluster.deploy.cluster_snapshot import read as reading
from gpuctl.cluster.discover.facts import Facts
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import config
from gpuctl.edges.kube.cluster import Cluster, Kind

ROUTE = ("route.openshift.io/v1", "Route")
# Those of every OpenShift (its documentation, "Managing security context constraints"): asked about one by one where
# they may not be listed.
OF_OPENSHIFT = ("restricted-v2", "nonroot-v2", "anyuid", "hostnetwork-v2", "hostaccess", "privileged")


@dataclass(frozen=True)
class Usable:
    """Security constraints that we may use; `why` not all of them are known."""

    names: tuple[str, ...] = ()
    why: str = ""
    may_make: bool = False


def connect(context: str, namespace: str) -> tuple[Cluster, str]:
    """The cluster of a context, and what the kubeconfig calls it."""
    found = kube.connect(context, namespace)
    known = {each.name: each for each in config.contexts(*config.files())}
    meant = known.get(context) if context else config.current(*config.files())
    if meant is None:  # the file has just changed
        raise InvalidInput("find out what the cluster is called", "no kubeconfig has its context any more")
    return found, meant.cluster


def look(cluster: Cluster, named: str) -> Facts:
    """Everything that can be read; `Unreachable` where the cluster does not answer."""
    openshift = cluster.serves(*SCC) and cluster.serves(*ROUTE)
    multus = cluster.serves(*ATTACHMENT)
    with AbandonablePool(AT_ONCE) as pool:
        asking = Asking(cluster, pool)
        space = asking.one("v1", "Namespace", cluster.namespace)
        nodes, claims = asking.several("v1", "Node"), asking.several("v1", "PersistentVolumeClaim")
        classes, attachments = asking.several("storage.k8s.io/v1", "StorageClass"), asking.several(*ATTACHMENT)
        pods = pool.submit(reading, lambda: cluster.find_everywhere(cluster.kind("v1", "Pod"), LIVE_PODS), [])
        usable = _usable(cluster, pool) if openshift else Usable()
        return Facts(
            server=cluster.server,
            named=named,
            namespace=cluster.namespace,
            space=space.result(),
            openshift=openshift,
            multus=multus,
            nodes=nodes.result(),
            pods=pods.result(),
            classes=classes.result(),
            claims=claims.result(),
            attachments=attachments.result(),
            usable=usable.names,
            constraints_why=usable.why,
            may_make=usable.may_make,
        )


def _usable(cluster: Cluster, pool: Executor) -> Usable:
    kind = cluster.kind(*SCC)
    listed: Read[list[kube.Object]] = reading(lambda: cluster.find(kind, {}), [])
    there = sorted(str(each["metadata"]["name"]) for each in listed.value)
    names = OF_OPENSHIFT if listed.why else there
    # They belong to the whole cluster, and are used in a namespace.
    asked = Kind(kind.api_version, kind.kind, kind.plural, namespaced=True)
    may = list(pool.map(lambda name: reading(lambda: cluster.may("use", asked, name), False), names))
    make: Read[bool] = reading(lambda: cluster.may("create", kind), False)
    return Usable(tuple(n for n, each in zip(names, may, strict=True) if each.value), listed.why, make.value)
