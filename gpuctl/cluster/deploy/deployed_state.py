"""State of a deployed environment: its mode, its number of pods and the image that was built."""

from __future__ import annotations

import contextlib
import shlex

from gpuctl.cluster.deploy.model import is_controlled, is_ours, is_terminating
from gpuctl.cluster.environment import Environment, Mode, Object
from gpuctl.domain.kube_errors import Forbidden, NotFound
from gpuctl.edges.kube.cluster import Cluster


def nodes(cluster: Cluster, env: Environment) -> int | None:
    """Return the desired number of pods, or None if the environment is not deployed.

    Without a StatefulSet, as after a replacement that was interrupted, as many as its pods that still run.
    """
    live = cluster.get(cluster.kind("apps/v1", "StatefulSet"), env.name)
    if live is not None:
        return int(live["spec"]["replicas"]) if is_ours(env, live) else None
    pods = cluster.find(cluster.kind("v1", "Pod"), env.selector)
    ranks = [rank for pod in pods if not is_terminating(pod) and (rank := adoptable_rank(env, pod)) is not None]
    return max(ranks) + 1 if ranks else None


def adoptable_rank(env: Environment, pod: Object) -> int | None:
    """Return the rank of a pod of ours that no controller owns, and that our StatefulSet adopts; else None."""
    name, _, rank = pod["metadata"]["name"].rpartition("-")
    labels = pod["metadata"].get("labels") or {}
    fits = not env.single and name == env.name and rank.isdecimal() and env.selector.items() <= labels.items()
    return int(rank) if fits and is_ours(env, pod) and not is_controlled(pod) else None


def built(cluster: Cluster, env: Environment) -> str:
    """Return the digest of the latest built image; empty if there is none, or if it may not be read."""
    if not env.cluster.image.build:
        return ""
    with contextlib.suppress(NotFound, Forbidden):
        stream = cluster.get(cluster.kind("image.openshift.io/v1", "ImageStream"), env.name)
        return digest_of(stream or {})
    return ""


def digest_of(stream: Object) -> str:
    """Return the digest behind the tag `latest` of an ImageStream, whose items are sorted newest first."""
    for tag in (stream.get("status") or {}).get("tags") or []:
        if tag.get("tag") == "latest" and tag.get("items"):
            return str(tag["items"][0].get("image") or "")
    return ""


def mode(cluster: Cluster, env: Environment) -> Mode | None:
    """Return the mode that the pods' settings name; None if the environment is not deployed, or none is named."""
    live = cluster.get(cluster.kind("v1", "ConfigMap"), f"{env.name}-start")
    return mode_of(live) if live and is_ours(env, live) else None


def mode_of(start: Object) -> Mode | None:
    """Read the mode from the ConfigMap with a pod's start files."""
    for line in str((start.get("data") or {}).get("settings.sh") or "").splitlines():
        name, _, value = line.partition("=")
        parts = shlex.split(value) if name == "mode" else []
        if parts == ["rdma"]:
            return "rdma"
        if parts == ["tcp"]:
            return "tcp"
    return None
