"""Cancel an interrupted build, even if the server's answer with its name was lost."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuctl.cluster.deploy.model import ProgressListener
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.image_build import builds, judge
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.cluster import Cluster

CANCEL_S = 30.0  # limit for a cancelled build to end


def cancel(cluster: Cluster, env: Environment, name: str, before: Sequence[Object], tell: ProgressListener) -> None:
    """Cancel our build and report the result; failures are reported too, and never hide another error."""
    tell(f"Build {name}" if name else "build", "is being cancelled")
    try:
        name = name or _new(cluster, env, before, tell)
        if not name:
            return
        builds.cancel(cluster, name)
        tell(f"Build {name}", _wait_for_end(cluster, name))
    except GpuctlError as error:
        tell(f"Build {name}" if name else "build", f"could not be cancelled: {error.wrong}")
        tell("hint", f"`oc get builds -n {env.namespace}` shows it, `oc cancel-build NAME` cancels it")


def _new(cluster: Cluster, env: Environment, before: Sequence[Object], tell: ProgressListener) -> str:
    """Return the name of the only new build, or "" if ours cannot be identified.

    With several new builds, ours may have finished and the running one may belong to somebody else.
    """
    new = builds.since(cluster, env, before)
    names = [str(build["metadata"]["name"]) for build in new if not judge.is_over(build)]
    if not names:
        tell("build", "none has started, or it has finished already")
    elif len(new) > 1:
        tell("build", f"it is not known whether {', '.join(names)} is ours; `oc cancel-build NAME` cancels it")
    return names[0] if names and len(new) == 1 else ""


def _wait_for_end(cluster: Cluster, name: str) -> str:
    """Wait for the end, because its pod holds resources that others need."""
    end, kind = time.monotonic() + CANCEL_S, cluster.kind(builds.API, builds.BUILD)
    while time.monotonic() < end:
        now = cluster.get(kind, name)
        if now is None or judge.is_over(now):
            return "is gone" if now is None else judge.describe(now)
        time.sleep(0.3)
    return f"was cancelled, and had not ended after {CANCEL_S:g} s"
