"""Builds through OpenShift's API (build.openshift.io/v1): start one, with or without a folder, and cancel it."""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.cluster.environment import Environment, Object
from gpuctl.domain.kube_errors import Forbidden
from gpuctl.edges.kube.cluster import Cluster, Kind, Request

API = "build.openshift.io/v1"
BUILD, CONFIG = "Build", "BuildConfig"
OF_CONFIG = "openshift.io/build-config.name"  # a label of every build
# The server waits up to 5 minutes for the build's pod before it takes the first byte (openshift-apiserver,
# registry/buildconfiginstantiate), and answers when the pod has all.
UPLOAD_S = 900.0
BINARY, PLAIN = "instantiatebinary", "instantiate"


def builds(cluster: Cluster, env: Environment) -> list[Object]:
    """List the builds of the environment's BuildConfig."""
    return cluster.find(cluster.kind(API, BUILD), labels(env))


def since(cluster: Cluster, env: Environment, before: Iterable[Object]) -> list[Object]:
    """List the builds created since `before`."""
    old = {build["metadata"]["uid"] for build in before}
    return [build for build in builds(cluster, env) if build["metadata"]["uid"] not in old]


def labels(env: Environment) -> dict[str, str]:
    return {OF_CONFIG: env.name}


def check_rights(cluster: Cluster, env: Environment, sends: bool) -> None:
    """Raise `Forbidden` with all missing rights, before anything is created."""
    config, stream = cluster.kind(API, CONFIG), cluster.kind("image.openshift.io/v1", "ImageStream")
    begin = Kind(API, CONFIG, f"{config.plural}/{BINARY if sends else PLAIN}", namespaced=True)
    build = cluster.kind(API, BUILD)
    log = Kind(API, BUILD, f"{build.plural}/log", namespaced=True)
    needed = [("create", begin), *((verb, build) for verb in ("get", "list", "watch", "patch")), ("get", log)]
    needed += [(verb, kind) for kind in (config, stream) for verb in ("get", "create", "patch")]
    lacking = [f"{verb} {kind.plural}" for verb, kind in needed if not cluster.may(verb, kind)]
    if lacking:
        wrong = f"you have no permission to {', '.join(lacking)} in the namespace {env.namespace}"
        raise Forbidden(f"build the image of {env.name}", wrong, "ask for the role `edit` there")


def begin(cluster: Cluster, env: Environment, archive: Iterable[bytes] | None) -> Object:
    """Start a build; never retried, because that would start two. `archive`: the folder to build."""
    doing = f"begin a build of {env.name}"
    path = f"{cluster.path_of(cluster.kind(API, CONFIG), env.name)}/{BINARY if archive is not None else PLAIN}"
    if archive is not None:
        return cluster.once(Request(doing, "POST", path, form="application/gzip", stream=archive), UPLOAD_S)
    # As `oc start-build` sends it.
    body = {
        "apiVersion": API,
        "kind": "BuildRequest",
        "metadata": {"name": env.name},
        "triggeredBy": [{"message": "Manually triggered"}],
    }
    return cluster.once(Request(doing, "POST", path, body=body))


def cancel(cluster: Cluster, name: str) -> None:
    """Request cancellation; the controller ends the build and deletes its pod. Idempotent."""
    body = {"status": {"cancelled": True}}
    path = cluster.path_of(cluster.kind(API, BUILD), name)
    cluster.ask(Request(f"cancel the build {name}", "PATCH", path, body=body, form="application/merge-patch+json"))
