"""What an environment that is deployed already runs as: its mode and its number of pods."""

from __future__ import annotations

import contextlib
import shlex

from gpuctl.cluster.deploy.model import is_ours
from gpuctl.cluster.environment import Environment, Mode, Object
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.errors import Forbidden, NotThere


def nodes(cluster: Cluster, env: Environment) -> int | None:
    """How many pods it is to have; None where it is not deployed."""
    live = cluster.get(cluster.kind("apps/v1", "StatefulSet"), env.name)
    return int(live["spec"]["replicas"]) if live and is_ours(env, live) else None


def built(cluster: Cluster, env: Environment) -> str:
    """The digest of the image that was built last; empty where there is none, or where nobody may say so."""
    if not env.cluster.image.build:
        return ""
    with contextlib.suppress(NotThere, Forbidden):
        stream = cluster.get(cluster.kind("image.openshift.io/v1", "ImageStream"), env.name)
        return digest_of(stream or {})
    return ""


def digest_of(stream: Object) -> str:
    """The digest behind the tag `latest` of an ImageStream, whose items are the newest first."""
    for tag in (stream.get("status") or {}).get("tags") or []:
        if tag.get("tag") == "latest" and tag.get("items"):
            return str(tag["items"][0].get("image") or "")
    return ""


def mode(cluster: Cluster, env: Environment) -> Mode | None:
    """What its pods were made for, as their own settings say; None where it is not deployed, or does not say."""
    live = cluster.get(cluster.kind("v1", "ConfigMap"), f"{env.name}-start")
    return mode_of(live) if live and is_ours(env, live) else None


def mode_of(start: Object) -> Mode | None:
    """The mode in a ConfigMap with the files of a pod's start."""
    for line in str((start.get("data") or {}).get("settings.sh") or "").splitlines():
        name, _, value = line.partition("=")
        parts = shlex.split(value) if name == "mode" else []
        if parts == ["rdma"]:
            return "rdma"
        if parts == ["tcp"]:
            return "tcp"
    return None
