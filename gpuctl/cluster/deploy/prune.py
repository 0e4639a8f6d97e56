"""Objects of an environment that are there, by its labels: those that nobody wants any more among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuctl.cluster.deploy.cluster_snapshot import AT_ONCE
from gpuctl.cluster.deploy.model import Change, is_ours
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import KINDS, VOLUMES, rights
from gpuctl.core.abandonable_pool import Askers
from gpuctl.edges.kube.cluster import Cluster, Kind
from gpuctl.edges.kube.errors import Forbidden, NotThere


def kinds(cluster: Cluster) -> list[Kind]:
    """Those of our kinds that the cluster serves, in the order in which they are made."""
    with Askers(AT_ONCE) as pool:
        served = list(pool.map(lambda kind: cluster.serves(*kind), KINDS))
    return [cluster.kind(*kind) for kind, is_served in zip(KINDS, served, strict=True) if is_served]


def ours(cluster: Cluster, env: Environment, kind: Kind) -> list[Object]:
    """All of a kind that are the environment's own; not what belongs to another object, and goes with it."""
    return [obj for obj in cluster.find(kind, env.labels) if is_own(env, kind, obj)]


def is_own(env: Environment, kind: Kind, obj: Object) -> bool:
    """Whether we made it. What belongs to no namespace has ours in its name: its labels may be another's, too."""
    if not is_ours(env, obj) or any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or []):
        return False
    return kind.namespaced or obj["metadata"]["name"] == rights.own_constraints(env)


def unwanted(cluster: Cluster, env: Environment, desired: Sequence[Object]) -> tuple[list[Object], list[str]]:
    """What an earlier deployment made and this one has no use for, but no volumes; and what we may not list."""
    names = {(obj["kind"], obj["metadata"]["name"]) for obj in desired}
    with Askers(AT_ONCE) as pool:
        listings = list(pool.map(lambda kind: found(cluster, env, kind), _removable(cluster)))
    left = [obj for mine, _ in listings for obj in mine if (obj["kind"], obj["metadata"]["name"]) not in names]
    return left, [why for _, why in listings if why]


def _removable(cluster: Cluster) -> list[Kind]:
    return [kind for kind in kinds(cluster) if (kind.api_version, kind.kind) != VOLUMES]


def found(cluster: Cluster, env: Environment, kind: Kind) -> tuple[list[Object], str]:
    """Ours of a kind; and why nobody let us look.

    Security constraints are the whole cluster's, and not everybody may list them: where the file asks for none of its
    own, they are not missed.
    """
    try:
        return ours(cluster, env, kind), ""
    except Forbidden as error:
        is_missed = kind.namespaced or rights.constraints_name(env) == rights.own_constraints(env)
        return [], error.wrong if is_missed else ""
    except NotThere:
        return [], ""


def removals(left: Iterable[Object]) -> list[Change]:
    """As changes, in the order in which they are made."""
    return [Change(obj["kind"], obj["metadata"]["name"], "remove", note="it is of no use any more") for obj in left]
