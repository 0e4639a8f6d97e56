"""Build an environment's image on OpenShift: objects, upload, log and result; Ctrl-C cancels the build."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuctl.cluster.deploy.model import ProgressListener, is_ours
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.image_build import builds, context, judge
from gpuctl.cluster.image_build.cancel import cancel
from gpuctl.cluster.image_build.context import Context
from gpuctl.cluster.image_build.judge import Built
from gpuctl.cluster.image_build.wait import BuildOptions, BuildWaiter, turn
from gpuctl.cluster.manifests import build as objects
from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.kube_errors import Conflict, Forbidden
from gpuctl.edges.kube.cluster import Cluster, name_of

ELSEWHERE = "`podman build -t IMAGE . && podman push IMAGE` (or docker, buildah), then `image: {name: IMAGE}`"
NO_POD = (
    "the cluster waits 5 minutes for a build's pod: check that a node has image.build.cpu and image.build.memory free"
)
PROGRESS_S = 5.0  # between progress messages of an upload
MIB = 2**20


def check(env: Environment) -> None:
    """Raise `InvalidInput` if the file does not build its image."""
    about, image = env.cluster.cluster, env.cluster.image
    if image.build:
        return
    doing = f"build the image of {env.name}"
    if env.openshift:
        wrong = f"the cluster file names an existing image: {image.name}"
        raise InvalidInput(doing, wrong, "`image: {build: {}}` instead builds a local folder")
    wrong = f"{about.name} is not OpenShift: it builds no images (flavour: {about.flavour})"
    raise InvalidInput(doing, wrong, ELSEWHERE.replace("IMAGE", image.name))


def read(env: Environment, folder: Path | None) -> Context | None:
    """Return the build context; None if none is sent: git and a Dockerfile in the cluster file need no folder."""
    settings = env.cluster.image.build
    if settings is None or (folder is None and (settings.git or settings.dockerfile)):
        return None
    return context.read(folder or Path(), settings.folder, needs_dockerfile=not settings.dockerfile)


def build(
    cluster: Cluster, env: Environment, sends: Context | None, options: BuildOptions, tell: ProgressListener
) -> Built:
    """Build the image; `sends`: the context that `read` returned.

    Raises `InvalidInput` if the cluster cannot build, `NotBuilt` with the reason if the build fails. If it is
    interrupted, or the upload fails, the build is cancelled; if the connection is lost later, it continues.
    """
    check(env)
    if not cluster.serves(builds.API, builds.CONFIG):
        wrong = f"{cluster.server} does not serve {builds.API}: it is not OpenShift, or builds are disabled"
        raise InvalidInput(f"build the image of {env.name}", wrong, ELSEWHERE)
    builds.check_rights(cluster, env, sends is not None)
    _apply(cluster, env, tell)
    before = builds.builds(cluster, env) if sends is None else turn(cluster, env, options.limit_s, tell)
    for earlier in before:
        _tell_of(earlier, tell)
    name = ""
    try:
        name = _begin(cluster, env, sends, before, tell)
        return judge.result(BuildWaiter(cluster, env, name, tell).wait(options))
    except KeyboardInterrupt:
        cancel(cluster, env, name, before, tell)
        raise
    except Unreachable:
        if name:
            tell(f"Build {name}", f"continues on the cluster; `oc logs -f build/{name} -n {env.namespace}` follows it")
        raise


def _tell_of(other: Object, tell: ProgressListener) -> None:
    """Report the fate of an unfinished earlier build: see runPolicy of the BuildConfig."""
    if not judge.is_over(other):
        runs = judge.phase(other) == judge.RUNNING
        becomes = (
            "ours starts when it has finished" if runs else "the cluster cancels it in favour of ours, which is newer"
        )
        tell(f"Build {other['metadata']['name']}", f"{judge.describe(other)}; {becomes}")


def _begin(
    cluster: Cluster, env: Environment, sends: Context | None, before: Sequence[Object], tell: ProgressListener
) -> str:
    """Start the build and return its name, once the upload is complete."""
    try:
        begun = builds.begin(cluster, env, _archive(sends, tell))
    except GpuctlError as error:
        if isinstance(error, Unreachable):  # which may take a while
            tell("build", f"{error.wrong}: looking for the build")
        _raise_reason(cluster, env, before, error, tell)
        if isinstance(error, Unreachable | _NotSent):  # nobody waits for it any more
            cancel(cluster, env, "", before, tell)
        raise
    name = str(begun["metadata"]["name"])
    tell(f"Build {name}", "has started")
    return name


def _raise_reason(
    cluster: Cluster, env: Environment, before: Sequence[Object], error: GpuctlError, tell: ProgressListener
) -> None:
    """Raise the build's own reason for rejecting the upload; the server then closes the connection half way.

    With several new builds, ours cannot be identified.
    """
    with contextlib.suppress(Unreachable, Forbidden):
        new = builds.since(cluster, env, before)
        if len(new) != 1:
            return
        if judge.phase(new[0]) in (judge.FAILED, judge.ERROR):
            raise judge.failed(new[0]) from error
        tell(f"Build {new[0]['metadata']['name']}", judge.describe(new[0]))
        if hint := judge.hint(new[0]) or (NO_POD if judge.phase(new[0]) in (judge.NEW, judge.PENDING) else ""):
            tell("hint", hint)


class _NotSent(GpuctlError):
    """A file could not be sent: the build has received part of the folder."""


def _apply(cluster: Cluster, env: Environment, tell: ProgressListener) -> None:
    """Apply the ImageStream and the BuildConfig, the same as `deploy`; those of others are left alone."""
    for desired in objects.image(env):
        live = cluster.get(cluster.kind_of(desired), desired["metadata"]["name"])
        if live is not None and not is_ours(env, live):
            hint = "choose another name for the environment (--environment), or remove the object"
            raise Conflict(f"apply {name_of(desired)}", "it exists and is not ours; it was left alone", hint)
        made = cluster.apply(desired)
        if live is None:
            tell(name_of(desired), "created")
        if desired["kind"] == "ImageStream":
            _check_registry(cluster, env, made)


def _check_registry(cluster: Cluster, env: Environment, stream: Object) -> None:
    """Require a registry: without one a build stays pending forever; its controller checks the same field."""
    if not (stream.get("status") or {}).get("dockerImageRepository"):
        wrong = f"{cluster.server} has no internal registry to push the image to"
        hint = "ask an admin: managementState of configs.imageregistry.operator.openshift.io/cluster has to be Managed"
        raise GpuctlError(f"build the image of {env.name}", wrong, f"{hint}; or {ELSEWHERE}")


def _archive(sends: Context | None, tell: ProgressListener) -> Iterator[bytes] | None:
    """Return the context as a stream that reports its progress; None without a context."""
    if sends is None:
        return None
    tell("folder", f"{sends.files} files, {_mib(sends.size)}; sent once the build's pod is ready to receive them")
    return _with_progress(sends, tell)


def _with_progress(sends: Context, tell: ProgressListener) -> Iterator[bytes]:
    last = time.monotonic()

    def sent(count: int) -> None:
        nonlocal last
        if time.monotonic() - last > PROGRESS_S:
            last = time.monotonic()
            tell("folder", f"{_mib(count)} of {_mib(sends.size)} sent")

    try:
        yield from context.stream(sends, sent)
    except GpuctlError as error:
        raise _NotSent(error.doing, error.wrong, error.hint) from error


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
