"""The image: an existing one, or one built by OpenShift."""

from __future__ import annotations

from gpuctl.cluster.clusterfile.model import Build
from gpuctl.cluster.environment import Environment, Object

BUILD = "build"
# OpenShift's internal registry, as reached inside the cluster.
REGISTRY = "image-registry.openshift-image-registry.svc:5000"


def reference(env: Environment) -> str:
    """Return the pods' image; a built one by its digest, so that all ranks run the same."""
    which = f"@{env.built}" if env.built else ":latest"
    return env.cluster.image.name or f"{REGISTRY}/{env.namespace}/{env.name}{which}"


def image(env: Environment) -> list[Object]:
    """Return the ImageStream and its BuildConfig; empty for an existing image."""
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
        # All builds push the same tag: OpenShift cancels all pending builds but the newest.
        "runPolicy": "SerialLatestOnly",
        # Builds are started by `gpuctl cluster build`, not by creating the BuildConfig.
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
