"""The image: the one that is named, or one that OpenShift builds."""

from __future__ import annotations

from gpuctl.cluster.clusterfile.model import Build
from gpuctl.cluster.environment import Environment, Object

BUILD = "build"
# Where OpenShift's own registry is reached inside the cluster.
REGISTRY = "image-registry.openshift-image-registry.svc:5000"


def reference(env: Environment) -> str:
    """What the pods run: of what was built exactly that, so that ranks never run two of them."""
    which = f"@{env.built}" if env.built else ":latest"
    return env.cluster.image.name or f"{REGISTRY}/{env.namespace}/{env.name}{which}"


def image(env: Environment) -> list[Object]:
    """The ImageStream and the BuildConfig that fills it; none where the image is there."""
    build = env.cluster.image.build
    return [_stream(env), _config(env, build)] if build else []


def _stream(env: Environment) -> Object:
    meta = env.meta(env.name, BUILD)
    kind = {"apiVersion": "image.openshift.io/v1", "kind": "ImageStream"}
    return {**kind, "metadata": meta, "spec": {"lookupPolicy": {"local": True}}}


def _config(env: Environment, build: Build) -> Object:
    room = {"cpu": build.cpu, "memory": build.memory}
    spec = {
        "output": {"to": {"kind": "ImageStreamTag", "name": f"{env.name}:latest"}},
        "source": _source(build),
        "strategy": {"type": "Docker", "dockerStrategy": {}},
        "resources": {"requests": room, "limits": dict(room)},
        # All make the same tag: of those that do not run yet, OpenShift cancels all but the newest.
        "runPolicy": "SerialLatestOnly",
        # It is begun by `gpuctl cluster build`, not by being made.
        "triggers": [],
        "successfulBuildsHistoryLimit": 2,
        "failedBuildsHistoryLimit": 2,
    }
    meta = env.meta(env.name, BUILD)
    return {"apiVersion": "build.openshift.io/v1", "kind": "BuildConfig", "metadata": meta, "spec": spec}


def _source(build: Build) -> Object:
    if build.dockerfile:
        return {"type": "Dockerfile", "dockerfile": build.dockerfile}
    if not build.git:  # a folder that `gpuctl cluster build` sends
        return {"type": "Binary", "binary": {}}
    git = {"uri": build.git, **({"ref": build.ref} if build.ref else {})}
    return {"type": "Git", "git": git, **({"contextDir": build.folder} if build.folder else {})}
