"""Public keys that may log in to a GPU pod: read from their sources, added to its Secret, and revoked."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain import public_keys
from gpuctl.domain.kube_errors import Conflict
from gpuctl.domain.pod_status import runs
from gpuctl.domain.public_keys import Authorized, PublicKey
from gpuctl.edges import public_keys as key_sources
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cluster import Cluster, Request, name_of
from gpuctl.edges.kube.pod_exec import Command
from gpuctl.eks.gpu_pod import model, objects, scripts
from gpuctl.eks.gpu_pod.model import Form
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod_read import LOOK_S, MERGE, ours, pod_of, touch

Object = dict[str, Any]
Progress = Callable[[str], object]
ANSWER_S = 20.0
SYNC_S = 180.0  # kubelets refresh mounted Secrets within two minutes, and sooner when the pod changes
ATTEMPTS = 5


@dataclass(frozen=True)
class KeySources:
    """Sources of public keys: files, users of GitHub, and the agent."""

    files: Sequence[Path]
    github: Sequence[str]
    agent: bool = False


def read_keys(sources: KeySources) -> list[PublicKey]:
    """Public keys of all sources; InvalidInput names the first that has none. An empty agent is no error."""
    keys = []
    if sources.agent:
        text, _ = key_sources.of_agent()
        keys += public_keys.accepted(text, "agent")
    for path in sources.files:
        doing = f"use the public key {path}"
        keys += _some(public_keys.parse(_content(path, doing), f"file:{path.name}", doing), doing)
    for user in sources.github:
        doing = f"use the public keys of the GitHub user {user}"
        if not public_keys.GITHUB_USER.fullmatch(user):
            raise InvalidInput(doing, "that is no name of a GitHub user", "it has letters, digits and single hyphens")
        keys += _some(public_keys.accepted(key_sources.of_github(user), f"github:{user}"), doing)
    return public_keys.merged([], keys)


def _some(keys: list[PublicKey], doing: str) -> list[PublicKey]:
    if not keys:
        raise InvalidInput(doing, "no key is in it", "`ssh-keygen -t ed25519` makes one")
    return keys


def _content(path: Path, doing: str) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise InvalidInput(doing, error.strerror or str(error), "name a file such as ~/.ssh/id_ed25519.pub") from error


# ---- the Secret -----------------------------------------------------------------------------------------------------


def keys_of(cluster: Cluster, place: Place) -> Authorized:
    """Keys that may log in; none if the pod has no Secret of keys yet."""
    return public_keys.read(_content_of(keys_secret(cluster, place)))


def keys_secret(cluster: Cluster, place: Place) -> Object | None:
    """The Secret of the keys; None if it does not exist."""
    return ours(cluster, place, "Secret", model.keys_name(place.pod))


def _content_of(secret: Object | None) -> str:
    """Content of authorized_keys; empty without a Secret."""
    data = (secret or {}).get("data") or {}
    return base64.b64decode(data.get(scripts.AUTHORIZED) or "").decode(errors="replace")


def add_keys(
    cluster: Cluster, place: Place, added: Sequence[PublicKey], form: Form, progress: Progress
) -> list[PublicKey]:
    """Add keys to the Secret, made if it does not exist, and write the pod's values to it; all keys are returned."""

    def add(existing: list[PublicKey]) -> list[PublicKey]:
        keys = public_keys.merged(existing, added)
        if not keys:
            raise InvalidInput(
                f"make the pod {place.pod}", "there is no public key that may log in", public_keys.ADD_KEYS
            )
        return keys

    return _change_keys(cluster, place, _Change(add, form), progress)


def change_keys(
    cluster: Cluster, place: Place, added: Sequence[PublicKey], revoked: Sequence[str], progress: Progress
) -> list[PublicKey]:
    """Add and revoke keys, and wait until the pod has them. A session that is open stays open."""
    doing = f"change the keys of {place.pod}"
    staying = list[PublicKey]()

    def change(existing: list[PublicKey]) -> list[PublicKey]:
        left = public_keys.without(existing, revoked, doing)
        staying[:] = public_keys.lost_origin(existing, left)
        return public_keys.merged(left, added)

    if keys_secret(cluster, place) is None:
        raise InvalidInput(doing, "it has none", f"`gpuctl eks pod {place.cluster}` makes the pod with keys")
    keys = _change_keys(cluster, place, _Change(change), progress)
    for key in staying:
        progress(f"{key.fingerprint} may still log in: it also has the origin {key.origin}")
    pod = pod_of(cluster, place)
    if pod is not None:
        await_keys(cluster, place, pod, keys, progress)
    return keys


@dataclass(frozen=True)
class _Change:
    """A change of the Secret of keys: of its keys, and of the pod's values if there is a `form`."""

    of_keys: Callable[[list[PublicKey]], list[PublicKey]]
    form: Form | None = None


def _change_keys(cluster: Cluster, place: Place, change: _Change, progress: Progress) -> list[PublicKey]:
    """Change the Secret; a change of somebody else in between is taken into account."""
    for attempt in range(ATTEMPTS):
        secret = keys_secret(cluster, place)
        content = _content_of(secret)
        before = public_keys.read(content)
        keys = change.of_keys(before.keys)
        try:
            if secret is None:
                _make_keys(cluster, place, keys, change.form)
            elif content != public_keys.text(keys) or (change.form and model.read_form(_notes(secret)) != change.form):
                write_keys(cluster, secret, keys, change.form)
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        if before.unknown:
            numbers = ", ".join(str(number) for number in before.unknown)
            progress(f"removed from the keys: lines that gpuctl did not write ({numbers})")
        return keys
    raise AssertionError("unreachable")


def _notes(item: Object) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def _make_keys(cluster: Cluster, place: Place, keys: list[PublicKey], form: Form | None) -> None:
    """Make the Secret; `Conflict` if somebody else made it meanwhile."""
    if form is None:
        raise GpuctlError(f"change the keys of {place.pod}", "they were deleted meanwhile", "run the command again")
    desired = objects.keys(place.pod, keys, form)
    path = cluster.path_of(cluster.kind("v1", "Secret"))
    cluster.ask(Request(f"make {name_of(desired)}", "POST", path, (("fieldManager", "gpuctl"),), desired))


def write_keys(cluster: Cluster, secret: Object, keys: Sequence[PublicKey], form: Form | None) -> None:
    """Change the Secret; `Conflict` if it changed since it was read."""
    encoded = base64.b64encode(public_keys.text(keys).encode()).decode()
    meta: Object = {"resourceVersion": secret["metadata"]["resourceVersion"]}
    meta |= {"annotations": {model.FORM: form.as_text()}} if form else {}
    body = {"metadata": meta, "data": {scripts.AUTHORIZED: encoded}}
    path = cluster.path_of(cluster.kind("v1", "Secret"), secret["metadata"]["name"])
    query = (("fieldManager", "gpuctl"),)
    cluster.ask(Request(f"change {name_of(secret)}", "PATCH", path, query, body, MERGE))


def await_keys(cluster: Cluster, place: Place, pod: Object, keys: Sequence[PublicKey], progress: Progress) -> None:
    """Wait until the pod's own file has exactly these keys; a change of the pod makes its node look at once."""
    if not runs(pod, objects.CONTAINER):
        return
    expected = public_keys.text(keys)
    touch(cluster, place, pod, model.KEYS, expected)
    end, reported = time.monotonic() + SYNC_S, False
    command = Command(["cat", f"{scripts.KEYS}/{scripts.AUTHORIZED}"], objects.CONTAINER, ANSWER_S)
    while True:
        _, output = pod_exec.read(cluster, place.pod, command)
        if output.decode(errors="replace") == expected:
            return
        if time.monotonic() > end:
            wrong = f"the pod still has the keys from before after {SYNC_S:g} s"
            hint = "the Secret is changed: the pod follows when its node does; --replace makes it again"
            raise GpuctlError(f"change the keys of {place.pod}", wrong, hint)
        if not reported:
            progress("waiting until the pod has the keys; that takes up to two minutes")
            reported = True
        time.sleep(LOOK_S)
