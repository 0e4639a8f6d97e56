"""Objects of an environment that are there, by its labels: those that nobody wants any more among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuctl.cluster.deploy.cluster_snapshot import AT_ONCE
from gpuctl.cluster.deploy.model import Change, is_ours
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import KINDS, VOLUMES, rights
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.edges.kube.cluster import Cluster, Kind
from gpuctl.edges.kube.errors import Forbidden, NotThere


def kinds(cluster: Cluster) -> list[Kind]:
    """Those of our kinds that the cluster serves, in the order in which they are made."""
    with AbandonablePool(AT_ONCE) as pool:
        served = list(pool.map(lambda each: cluster.serves(*each), KINDS))
    return [cluster.kind(*each) for each, is_served in zip(KINDS, served, strict=True) if is_served]


def ours(cluster: Cluster, env: Environment, kind: Kind) -> list[Object]:
    """All of a kind that are the environment's own; not what belongs to another object, and goes with it."""
    return [each for each in cluster.find(kind, env.labels) if is_own(env, kind, each)]


def is_own(env: Environment, kind: Kind, found: Object) -> bool:
    """Whether we made it. What belongs to no namespace has ours in its name: its labels may be another's, too."""
    if not is_ours(env, found) or any(
        each.get("controller") for each in found["metadata"].get("ownerReferences") or []
    ):
        return False
    return kind.namespaced or found["metadata"]["name"] == rights.own_constraints(env)


def unwanted(cluster: Cluster, env: Environment, wanted: Sequence[Object]) -> tuple[list[Object], list[str]]:
    """What an earlier deployment made and this one has no use for, but no volumes; and what we may not list."""
    names = {(each["kind"], each["metadata"]["name"]) for each in wanted}
    with AbandonablePool(AT_ONCE) as pool:
        looked = list(pool.map(lambda kind: found(cluster, env, kind), _removable(cluster)))
    left = [each for mine, _ in looked for each in mine if (each["kind"], each["metadata"]["name"]) not in names]
    return left, [why for _, why in looked if why]


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
    return [Change(each["kind"], each["metadata"]["name"], "remove", note="it is of no use any more") for each in left]
