"""Read everything that a cluster file needs from a cluster, concurrently."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.deploy.read_snapshot import AT_ONCE, ATTACHMENT, LIVE_PODS, SCC, ClusterReader, attempt
from gpuctl.cluster.discover.facts import Facts
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube import config
from gpuctl.edges.kube.cluster import Cluster, Kind

ROUTE = ("route.openshift.io/v1", "Route")
# Constraints of every OpenShift (its documentation, "Managing security context constraints"): checked one by one
# if they may not be listed.
OF_OPENSHIFT = ("restricted-v2", "nonroot-v2", "anyuid", "hostnetwork-v2", "hostaccess", "privileged")


@dataclass(frozen=True)
class Usable:
    """Security constraints that we may use; `why`: the reason if not all of them are known."""

    names: tuple[str, ...] = ()
    why: str = ""
    may_make: bool = False


def connect(context: str, namespace: str) -> tuple[Cluster, str]:
    """Connect to the cluster of a context; returns it with its name in the kubeconfig."""
    cluster = kube.connect(context, namespace)
    known = {entry.name: entry for entry in config.contexts(*config.files())}
    meant = known.get(context) if context else config.current(*config.files())
    if meant is None:  # the file has just changed
        raise InvalidInput("find out what the cluster is called", "no kubeconfig has its context any more")
    return cluster, meant.cluster


def read_facts(cluster: Cluster, named: str) -> Facts:
    """Read all facts; raises `Unreachable` if the cluster does not answer."""
    openshift = cluster.serves(*SCC) and cluster.serves(*ROUTE)
    multus = cluster.serves(*ATTACHMENT)
    with AbandonablePool(AT_ONCE) as pool:
        reader = ClusterReader(cluster, pool)
        space = reader.get("v1", "Namespace", cluster.namespace)
        nodes, claims = reader.find("v1", "Node"), reader.find("v1", "PersistentVolumeClaim")
        classes, attachments = reader.find("storage.k8s.io/v1", "StorageClass"), reader.find(*ATTACHMENT)
        pods = pool.submit(attempt, lambda: cluster.find_everywhere(cluster.kind("v1", "Pod"), LIVE_PODS), [])
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
    listed: Maybe[list[kube.Object]] = attempt(lambda: cluster.find(kind, {}), [])
    existing = sorted(str(entry["metadata"]["name"]) for entry in listed.value)
    names = OF_OPENSHIFT if listed.why else existing
    # They are cluster-wide, and used in a namespace.
    namespaced = Kind(kind.api_version, kind.kind, kind.plural, namespaced=True)
    may = list(pool.map(lambda name: attempt(lambda: cluster.may("use", namespaced, name), nothing=False), names))
    make: Maybe[bool] = attempt(lambda: cluster.may("create", kind), nothing=False)
    return Usable(tuple(n for n, entry in zip(names, may, strict=True) if entry.value), listed.why, make.value)
