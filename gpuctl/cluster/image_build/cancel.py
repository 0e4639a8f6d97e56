"""Cancels a build that was broken off, also where no answer told its name."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuctl.cluster.deploy.model import Tell
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.image_build import builds, judge
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cluster import Cluster

CANCEL_S = 30.0  # for a build to end that was asked to


def cancel(cluster: Cluster, env: Environment, name: str, before: Sequence[Object], tell: Tell) -> None:
    """Cancel our build, and say what became of it; what cannot be done is told, and hides no other error."""
    tell(f"Build {name}" if name else "build", "is being cancelled")
    try:
        name = name or _new(cluster, env, before, tell)
        if not name:
            return
        builds.cancel(cluster, name)
        tell(f"Build {name}", _ended(cluster, name))
    except GpuctlError as error:
        tell(f"Build {name}" if name else "build", f"could not be cancelled: {error.wrong}")
        tell("hint", f"`oc get builds -n {env.namespace}` shows it, `oc cancel-build NAME` ends it")


def _new(cluster: Cluster, env: Environment, before: Sequence[Object], tell: Tell) -> str:
    """The one that came since, where no answer told its name; empty where that is not known.

    Of several, ours may be one that is over: the one that goes on is then somebody else's.
    """
    new = builds.since(cluster, env, before)
    names = [str(build["metadata"]["name"]) for build in new if not judge.is_over(build)]
    if not names:
        tell("build", "none has begun, or it is over already")
    elif len(new) > 1:
        tell("build", f"whether {', '.join(names)} is ours is not known; `oc cancel-build NAME` ends it")
    return names[0] if names and len(new) == 1 else ""


def _ended(cluster: Cluster, name: str) -> str:
    """Wait for a while, for its pod holds what others wait for."""
    end, kind = time.monotonic() + CANCEL_S, cluster.kind(builds.API, builds.BUILD)
    while time.monotonic() < end:
        now = cluster.get(kind, name)
        if now is None or judge.is_over(now):
            return "is gone" if now is None else judge.words(now)
        time.sleep(0.3)
    return f"was asked to end, and had not after {CANCEL_S:g} s"
