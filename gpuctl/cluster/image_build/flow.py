"""Builds an environment's image on OpenShift: its objects, the folder, the log, the end; Ctrl-C cancels the build."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuctl.cluster.deploy.model import Tell, is_ours
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.image_build import builds, context, judge
from gpuctl.cluster.image_build.cancel import cancel
from gpuctl.cluster.image_build.context import Context
from gpuctl.cluster.image_build.judge import Built
from gpuctl.cluster.image_build.wait import Waiting, Wish, turn
from gpuctl.cluster.manifests import build as objects
from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.edges.kube.cluster import Cluster, name_of
from gpuctl.edges.kube.errors import Conflict, Forbidden

ELSEWHERE = "`podman build -t IMAGE . && podman push IMAGE` (or docker, buildah), then `image: {name: IMAGE}`"
NO_POD = "the cluster waits 5 minutes for a build's pod: is there room for image.build.cpu and image.build.memory?"
TELL_S = 5.0  # between two words on how much was sent
MIB = 2**20


def check(env: Environment) -> None:
    """`InvalidInput` where the file does not have its image built."""
    about, image = env.cluster.cluster, env.cluster.image
    if image.build:
        return
    doing = f"build the image of {env.name}"
    if env.openshift:
        wrong = f"the cluster file names an image that is there: {image.name}"
        raise InvalidInput(doing, wrong, "`image: {build: {}}` in its place builds a folder of yours")
    wrong = f"{about.name} is not OpenShift: it builds no images (flavour: {about.flavour})"
    raise InvalidInput(doing, wrong, ELSEWHERE.replace("IMAGE", image.name))


def read(env: Environment, folder: Path | None) -> Context | None:
    """What is sent; None where nothing is: git and a Dockerfile in the cluster file need no folder."""
    wanted = env.cluster.image.build
    if wanted is None or (folder is None and (wanted.git or wanted.dockerfile)):
        return None
    return context.read(folder or Path(), wanted.folder, own_dockerfile=not wanted.dockerfile)


def build(cluster: Cluster, env: Environment, sends: Context | None, wish: Wish, tell: Tell) -> Built:
    """The image; `sends`: the folder, as `read` gave it.

    `InvalidInput` if the cluster builds nothing, `NotBuilt` with the reason where the build fails. Where it is broken
    off, or the folder does not get there, the build is cancelled; where the cluster is lost later, it goes on.
    """
    check(env)
    if not cluster.serves(builds.API, builds.CONFIG):
        wrong = f"{cluster.server} does not serve {builds.API}: it is not OpenShift, or builds are switched off"
        raise InvalidInput(f"build the image of {env.name}", wrong, ELSEWHERE)
    builds.check_rights(cluster, env, sends is not None)
    _apply(cluster, env, tell)
    before = builds.builds(cluster, env) if sends is None else turn(cluster, env, wish.limit_s, tell)
    for each in before:
        _tell_of(each, tell)
    name = ""
    try:
        name = _begin(cluster, env, sends, before, tell)
        return judge.result(Waiting(cluster, env, name, tell).wait(wish))
    except KeyboardInterrupt:
        cancel(cluster, env, name, before, tell)
        raise
    except Unreachable:
        if name:
            tell(f"Build {name}", f"goes on without us; `oc logs -f build/{name} -n {env.namespace}` follows it")
        raise


def _tell_of(other: Object, tell: Tell) -> None:
    """What becomes of one that is not over when ours comes: see runPolicy of the BuildConfig."""
    if not judge.is_over(other):
        runs = judge.phase(other) == judge.RUNNING
        becomes = "ours begins when it is over" if runs else "the cluster cancels it for ours, which is newer"
        tell(f"Build {other['metadata']['name']}", f"{judge.words(other)}; {becomes}")


def _begin(cluster: Cluster, env: Environment, sends: Context | None, before: Sequence[Object], tell: Tell) -> str:
    """The name of the build, once it has all that it is built from."""
    try:
        begun = builds.begin(cluster, env, _archive(sends, tell))
    except GpuctlError as error:
        if isinstance(error, Unreachable):  # which may take a while
            tell("build", f"{error.wrong}: looking what became of it")
        _raise_reason(cluster, env, before, error, tell)
        if isinstance(error, Unreachable | _NotSent):  # nobody waits for it any more
            cancel(cluster, env, "", before, tell)
        raise
    name = str(begun["metadata"]["name"])
    tell(f"Build {name}", "has begun")
    return name


def _raise_reason(cluster: Cluster, env: Environment, before: Sequence[Object], error: GpuctlError, tell: Tell) -> None:
    """A build that did not take the folder knows better why; a server then closes the connection half way.

    Of several that came since, nobody knows which is ours.
    """
    with contextlib.suppress(Unreachable, Forbidden):
        new = builds.since(cluster, env, before)
        if len(new) != 1:
            return
        if judge.phase(new[0]) in (judge.FAILED, judge.ERROR):
            raise judge.failed(new[0]) from error
        tell(f"Build {new[0]['metadata']['name']}", judge.words(new[0]))
        if hint := judge.hint(new[0]) or (NO_POD if judge.phase(new[0]) in (judge.NEW, judge.PENDING) else ""):
            tell("hint", hint)


class _NotSent(GpuctlError):
    """A file of the folder could not be sent: the build has half of it."""


def _apply(cluster: Cluster, env: Environment, tell: Tell) -> None:
    """The ImageStream and the BuildConfig, as `deploy` makes them, too; others' are left alone."""
    for wanted in objects.image(env):
        live = cluster.get(cluster.kind_of(wanted), wanted["metadata"]["name"])
        if live is not None and not is_ours(env, live):
            hint = "give the environment another name (--environment), or remove it"
            raise Conflict(f"apply {name_of(wanted)}", "it is there, and is not ours; it was left alone", hint)
        made = cluster.apply(wanted)
        if live is None:
            tell(name_of(wanted), "created")
        if wanted["kind"] == "ImageStream":
            _check_registry(cluster, env, made)


def _check_registry(cluster: Cluster, env: Environment, stream: Object) -> None:
    """Without one a build would wait to be begun for ever: its controller looks at the same field."""
    if not (stream.get("status") or {}).get("dockerImageRepository"):
        wrong = f"{cluster.server} has no registry of its own, where the image would go"
        hint = "ask an admin: managementState of configs.imageregistry.operator.openshift.io/cluster is to be Managed"
        raise GpuctlError(f"build the image of {env.name}", wrong, f"{hint}; or {ELSEWHERE}")


def _archive(sends: Context | None, tell: Tell) -> Iterator[bytes] | None:
    """The folder as a stream that tells how far it is; None where there is none."""
    if sends is None:
        return None
    tell("folder", f"{sends.files} files, {_mib(sends.size)}; sent once the build's pod is there to take them")
    return _telling(sends, tell)


def _telling(sends: Context, tell: Tell) -> Iterator[bytes]:
    last = time.monotonic()

    def sent(count: int) -> None:
        nonlocal last
        if time.monotonic() - last > TELL_S:
            last = time.monotonic()
            tell("folder", f"{_mib(count)} of {_mib(sends.size)} sent")

    try:
        yield from context.stream(sends, sent)
    except GpuctlError as error:
        raise _NotSent(error.doing, error.wrong, error.hint) from error


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
