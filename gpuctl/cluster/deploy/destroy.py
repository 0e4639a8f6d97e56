"""Remove an environment: exactly its own objects, selected by their labels; volumes only on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.cluster.deploy import account_grant, prune, removal
from gpuctl.cluster.deploy.model import ProgressListener
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import VOLUMES
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cluster import Cluster, name_of


@dataclass(frozen=True)
class EnvironmentObjects:
    """The existing objects of an environment in the order of removal; `unread`: why some kinds could not be listed."""

    objects: Sequence[Object]
    volumes: Sequence[Object]
    unread: Sequence[str] = ()


def find(cluster: Cluster, env: Environment) -> EnvironmentObjects:
    """List all objects of the environment, of every kind that the cluster serves."""
    env = account_grant.as_deployed(cluster, env)
    listings = [prune.find_ours(cluster, env, kind) for kind in reversed(prune.kinds(cluster))]
    mine = [obj for objects, _ in listings for obj in objects]
    volumes = [obj for obj in mine if (obj["apiVersion"], obj["kind"]) == VOLUMES]
    return EnvironmentObjects([obj for obj in mine if obj not in volumes], volumes, [why for _, why in listings if why])


def remove(
    cluster: Cluster, env: Environment, objects: EnvironmentObjects, tell: ProgressListener, limit_s: float
) -> None:
    """Remove one kind after the other, dependents first; raises `GpuctlError` if something remains."""
    todo = [*objects.objects, *objects.volumes]
    kinds = dict.fromkeys((obj["apiVersion"], obj["kind"]) for obj in todo)
    done = 0
    for kind in kinds:
        mine = [obj for obj in todo if (obj["apiVersion"], obj["kind"]) == kind]
        left = removal.remove(cluster, mine, limit_s, lambda obj: tell(name_of(obj), "removed"))
        done += len(mine) - len(left)
        if left:
            wrong = (
                f"{', '.join(map(name_of, left))} still there after {limit_s:g} s; {done} of {len(todo)} are removed"
            )
            hint = f"`kubectl get -o yaml` shows its finalizers and why it stays: {_why(left[0])}"
            raise GpuctlError(f"destroy {env.name}", wrong, hint)


def _why(left: Object) -> str:
    return ", ".join(left["metadata"].get("finalizers") or []) or "its dependents are removed first"
