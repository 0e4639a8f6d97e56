"""Removes an environment: exactly its own objects, found by their labels; its volumes only when that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuctl.cluster.deploy import prune, removal
from gpuctl.cluster.deploy.model import Tell
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import VOLUMES
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cluster import Cluster, name_of


@dataclass(frozen=True)
class Found:
    """What is there of it, in the order in which it is removed; `unread`: kinds that nobody let us look for."""

    objects: Sequence[Object]
    volumes: Sequence[Object]
    unread: Sequence[str] = ()


def find(cluster: Cluster, env: Environment) -> Found:
    """All of it; of kinds that the cluster serves."""
    listings = [prune.found(cluster, env, kind) for kind in reversed(prune.kinds(cluster))]
    mine = [obj for objects, _ in listings for obj in objects]
    volumes = [obj for obj in mine if (obj["apiVersion"], obj["kind"]) == VOLUMES]
    return Found([obj for obj in mine if obj not in volumes], volumes, [why for _, why in listings if why])


def remove(cluster: Cluster, env: Environment, objects: Found, tell: Tell, limit_s: float) -> None:
    """One kind after the other, what uses the others first; `GpuctlError` where something stays."""
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
    return ", ".join(left["metadata"].get("finalizers") or []) or "what belongs to it goes first"
