"""List an environment's existing objects by their labels, and those that a deployment no longer needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuctl.cluster.deploy import deployed_state
from gpuctl.cluster.deploy.model import Change, is_controlled, is_ours
from gpuctl.cluster.deploy.read_snapshot import AT_ONCE
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import KINDS, VOLUMES, rights
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube.cluster import Cluster, Kind


def kinds(cluster: Cluster) -> list[Kind]:
    """Return the kinds of ours that the cluster serves, in the order of creation."""
    with AbandonablePool(AT_ONCE) as pool:
        served = list(pool.map(lambda kind: cluster.serves(*kind), KINDS))
    return [cluster.kind(*kind) for kind, is_served in zip(KINDS, served, strict=True) if is_served]


def ours(cluster: Cluster, env: Environment, kind: Kind) -> list[Object]:
    """List the environment's objects of a kind, without those owned by another object."""
    return [obj for obj in cluster.find(kind, env.labels) if belongs_to(env, kind, obj)]


def belongs_to(env: Environment, kind: Kind, obj: Object) -> bool:
    """Return True if we created it. Cluster-wide objects are matched by name too: labels repeat across namespaces."""
    if not is_ours(env, obj) or is_controlled(obj):
        return False
    return kind.namespaced or obj["metadata"]["name"] == rights.created_constraints(env)


def unwanted(cluster: Cluster, env: Environment, desired: Sequence[Object]) -> tuple[list[Object], list[str]]:
    """Return objects of earlier deployments that are not needed any more (never volumes), and unreadable kinds."""
    names = {(obj["kind"], obj["metadata"]["name"]) for obj in desired}
    with AbandonablePool(AT_ONCE) as pool:
        listings = list(pool.map(lambda kind: find_ours(cluster, env, kind), _removable(cluster)))
    left = [obj for mine, _ in listings for obj in mine if (obj["kind"], obj["metadata"]["name"]) not in names]
    return [obj for obj in left if not _is_adopted(env, obj)], [why for _, why in listings if why]


def _is_adopted(env: Environment, obj: Object) -> bool:
    """Return True for a pod whose StatefulSet is gone: the new one adopts it, and it keeps running."""
    rank = deployed_state.adoptable_rank(env, obj) if obj["kind"] == "Pod" else None
    return rank is not None and rank < env.nodes


def _removable(cluster: Cluster) -> list[Kind]:
    return [kind for kind in kinds(cluster) if (kind.api_version, kind.kind) != VOLUMES]


def find_ours(cluster: Cluster, env: Environment, kind: Kind) -> tuple[list[Object], str]:
    """List our objects of a kind, and the reason if that is forbidden.

    Security constraints are cluster-wide, and not everybody may list them: unless the file needs its own, that is
    no problem.
    """
    try:
        return ours(cluster, env, kind), ""
    except Forbidden as error:
        is_missed = kind.namespaced or rights.constraints_to_grant(env) == rights.created_constraints(env)
        return [], error.wrong if is_missed else ""
    except NotFound:
        return [], ""


def removals(left: Iterable[Object]) -> list[Change]:
    """Return removals as changes, in the order in which they are made."""
    return [Change(obj["kind"], obj["metadata"]["name"], "remove", note="it is no longer needed") for obj in left]
