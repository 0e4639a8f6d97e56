"""A GPU pod in a cluster: make it, wait until ssh answers, add and revoke keys, and test its GPUs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.cluster.deploy import pod_progress
from gpuctl.cluster.deploy.pod_progress import PodProgress
from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.findings import Finding, Verdict, fail, ok, unknown, unknown_because
from gpuctl.domain.kube_errors import Conflict, Forbidden
from gpuctl.domain.pod_status import last_termination, runs, statuses
from gpuctl.edges import public_keys as key_sources
from gpuctl.edges.kube import pod_exec, port_stream
from gpuctl.edges.kube.cluster import Cluster, Request, name_of
from gpuctl.edges.kube.pod_exec import Command, NotStarted
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import gpu_test, model, objects, public_keys, scripts
from gpuctl.eks.gpu_pod.model import Form, Options
from gpuctl.eks.gpu_pod.public_keys import PublicKey
from gpuctl.workflows.eks_access import Place

Object = dict[str, Any]
Progress = Callable[[str], object]
MERGE = "application/merge-patch+json"
LOOK_S, GONE_S, ANSWER_S = 1.0, 120.0, 20.0
SYNC_S = 180.0  # kubelets refresh mounted Secrets within two minutes, and sooner when the pod changes
TEST_S = 180.0  # importing torch from a cold disk takes a minute
ATTEMPTS = 5
ADD_KEYS = "add a key to the ssh agent, or use --key FILE or --github USER"
LOGS = "`kubectl logs` and `kubectl describe pod` show more"


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
        keys += _agent_keys(text)
    for path in sources.files:
        doing = f"use the public key {path}"
        keys += _some(public_keys.parse(_content(path, doing), f"file:{path.name}", doing), doing)
    for user in sources.github:
        doing = f"use the public keys of the GitHub user {user}"
        if not public_keys.GITHUB_USER.fullmatch(user):
            raise InvalidInput(doing, "that is no name of a GitHub user", "it has letters, digits and single hyphens")
        keys += _some(public_keys.parse(key_sources.of_github(user), f"github:{user}", doing), doing)
    return public_keys.merged([], keys)


def _agent_keys(text: str) -> list[PublicKey]:
    """Keys of the agent that sshd takes; certificates and others are left out."""
    keys = []
    for line in text.splitlines():
        with contextlib.suppress(InvalidInput):
            keys += public_keys.parse(line, "agent", "use the agent's keys")
    return keys


def _some(keys: list[PublicKey], doing: str) -> list[PublicKey]:
    if not keys:
        raise InvalidInput(doing, "no key is in it", "`ssh-keygen -t ed25519` makes one")
    return keys


def _content(path: Path, doing: str) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise InvalidInput(doing, error.strerror or str(error), "name a file such as ~/.ssh/id_ed25519.pub") from error


# ---- the pod ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PodRequest:
    """Inputs. `replace`: delete an existing pod, and make it again on its workspace."""

    options: Options
    keys: Sequence[PublicKey]
    replace: bool = False


def ensure(cluster: Cluster, place: Place, request: PodRequest, progress: Progress) -> Object:
    """Make the pod, or take the one that exists; add the keys. Each step can be repeated."""
    doing = f"make the pod {place.pod}"
    model.check_options(request.options)
    existing = pod_of(cluster, place)
    form = model.read_form(existing["metadata"].get("annotations") or {}) if existing else None
    keep = existing is not None and not request.replace and not _has_ended(existing)
    if keep:
        _check_same(place, request.options, form)
    _check_workspace(cluster, place, request.options)
    desired = form if keep and form else model.form_of(request.options, form, doing)
    authorized = _add_keys(cluster, place, request.keys)
    if existing is not None and keep:
        _await_keys(cluster, place, existing, authorized, progress)
        return existing
    if existing is not None:
        progress(f"deleting the pod {place.pod}; its workspace stays")
        cluster.delete(existing)
        _await_end(cluster, place, existing)
    return _make(cluster, place, desired)


def pod_of(cluster: Cluster, place: Place) -> Object | None:
    """The pod; None if it does not exist, or ends already. `InvalidInput` if gpuctl did not make it."""
    pod = cluster.get(cluster.kind("v1", "Pod"), place.pod)
    if pod is not None and (pod["metadata"].get("labels") or {}).get(model.POD_LABEL) != place.pod:
        hint = "choose another name with --pod"
        raise InvalidInput(f"use the pod {place.pod}", f"{cluster.namespace} has one that gpuctl did not make", hint)
    if pod is not None and "deletionTimestamp" in pod["metadata"]:
        _await_end(cluster, place, pod)
        return None
    return pod


def running(cluster: Cluster, place: Place, doing: str) -> Object:
    """The pod, which runs; else an error with the reason."""
    pod = pod_of(cluster, place)
    if pod is None:
        hint = f"`gpuctl eks pod {place.cluster}` makes it"
        raise InvalidInput(doing, f"the namespace {cluster.namespace} has no pod {place.pod}", hint)
    if not runs(pod, objects.CONTAINER):
        state = _state(cluster, pod)
        raise GpuctlError(doing, f"the pod {place.pod} {_words(state)}", LOGS)
    return pod


def _check_same(place: Place, options: Options, form: Form | None) -> None:
    doing = f"use the pod {place.pod}"
    hint = "add --replace to make the pod again; its workspace stays, and what runs in it ends"
    if form is None:
        raise InvalidInput(doing, "its annotation does not name the values it was made from", hint)
    if different := model.differences(options, form):
        raise InvalidInput(doing, f"it exists with other values ({'; '.join(different)})", hint)


def _check_workspace(cluster: Cluster, place: Place, options: Options) -> None:
    """`InvalidInput` for options that an existing workspace does not have: it is never changed."""
    name = model.workspace_name(place.pod)
    claim = cluster.get(cluster.kind("v1", "PersistentVolumeClaim"), name)
    if claim is None:
        return
    spec = claim["spec"]
    now = {"workspace": spec["resources"]["requests"].get("storage"), "storage_class": spec.get("storageClassName")}
    different = [
        f"{option}: {value}, not {getattr(options, option)}"
        for option, value in now.items()
        if getattr(options, option) not in (None, value)
    ]
    if different:
        hint = (
            f"omit the option, use another --pod, or delete the volume with all its files: `kubectl delete pvc {name}`"
        )
        raise InvalidInput(f"use the workspace {name}", f"it exists with other values ({'; '.join(different)})", hint)


def _has_ended(pod: Object) -> bool:
    """True for a pod that will not run again, such as an evicted one."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _await_end(cluster: Cluster, place: Place, pod: Object) -> None:
    end = time.monotonic() + GONE_S
    while True:
        now = cluster.get(cluster.kind("v1", "Pod"), place.pod)
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        if time.monotonic() > end:
            wrong = f"the pod {place.pod} still ends after {GONE_S:g} s"
            raise GpuctlError(f"make the pod {place.pod}", wrong, "is its node up? `kubectl get nodes` shows it")
        time.sleep(LOOK_S)


def _make(cluster: Cluster, place: Place, form: Form) -> Object:
    """Make volume, scripts, host key and pod. The host key is of this pod alone, and goes with it."""
    doing = f"make the pod {place.pod}"
    claims = cluster.kind("v1", "PersistentVolumeClaim")
    if cluster.get(claims, model.workspace_name(place.pod)) is None:
        cluster.apply(objects.workspace(place.pod, form))
    cluster.apply(objects.start(place.pod, form))
    private, public = pair()
    secret = objects.host(place.pod, secrets.token_hex(4), private, secrets.token_urlsafe(24))
    cluster.apply(secret)
    body = objects.pod(place.pod, form, secret["metadata"]["name"], public)
    path = cluster.path_of(cluster.kind("v1", "Pod"))
    try:
        pod = cluster.once(Request(doing, "POST", path, (("fieldManager", "gpuctl"),), body))
    except Conflict as error:
        raise GpuctlError(doing, "somebody else made it at this moment", "run the command again") from error
    _own(cluster, secret, pod)
    _remove_unused(cluster, place, secret["metadata"]["name"])
    return pod


def _own(cluster: Cluster, secret: Object, pod: Object) -> None:
    """Make the pod the owner of its Secret, so that Kubernetes removes both together."""
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    path = cluster.path_of(cluster.kind("v1", "Secret"), secret["metadata"]["name"])
    body = {"metadata": {"ownerReferences": [owner]}}
    cluster.ask(Request(f"change {name_of(secret)}", "PATCH", path, (), body, MERGE))


def _remove_unused(cluster: Cluster, place: Place, used: str) -> None:
    """Remove host keys that an interrupted run left: those of no pod."""
    for secret in cluster.find(cluster.kind("v1", "Secret"), objects.labels(place.pod, "host")):
        if secret["metadata"]["name"] != used and not secret["metadata"].get("ownerReferences"):
            cluster.delete(secret)


# ---- keys ------------------------------------------------------------------------------------------------------------


def keys_of(cluster: Cluster, place: Place) -> list[PublicKey]:
    """Keys that may log in; none if the pod has no Secret of keys yet."""
    return _decoded(_keys_secret(cluster, place))


def _keys_secret(cluster: Cluster, place: Place) -> Object | None:
    return cluster.get(cluster.kind("v1", "Secret"), model.keys_name(place.pod))


def _decoded(secret: Object | None) -> list[PublicKey]:
    data = (secret or {}).get("data") or {}
    return public_keys.read(base64.b64decode(data.get(scripts.AUTHORIZED) or "").decode(errors="replace"))


def _add_keys(cluster: Cluster, place: Place, added: Sequence[PublicKey]) -> list[PublicKey]:
    def add(existing: list[PublicKey]) -> list[PublicKey]:
        keys = public_keys.merged(existing, added)
        if not keys:
            raise InvalidInput(f"make the pod {place.pod}", "there is no public key that may log in", ADD_KEYS)
        return keys

    return _change_keys(cluster, place, add)


def change_keys(
    cluster: Cluster, place: Place, added: Sequence[PublicKey], revoked: Sequence[str], progress: Progress
) -> list[PublicKey]:
    """Add and revoke keys, and wait until the pod has them. A session that is open stays open."""
    doing = f"change the keys of {place.pod}"

    def change(existing: list[PublicKey]) -> list[PublicKey]:
        return public_keys.merged(public_keys.without(existing, revoked, doing), added)

    if _keys_secret(cluster, place) is None:
        raise InvalidInput(doing, "it has none", f"`gpuctl eks pod {place.cluster}` makes the pod with keys")
    keys = _change_keys(cluster, place, change)
    pod = pod_of(cluster, place)
    if pod is not None:
        _await_keys(cluster, place, pod, keys, progress)
    return keys


def _change_keys(
    cluster: Cluster, place: Place, change: Callable[[list[PublicKey]], list[PublicKey]]
) -> list[PublicKey]:
    """Change the Secret; a change of somebody else in between is taken into account."""
    for attempt in range(ATTEMPTS):
        secret = _keys_secret(cluster, place)
        before = _decoded(secret)
        keys = change(before)
        if secret is not None and keys == before:
            return keys
        desired = objects.keys(place.pod, keys)
        if secret is not None:
            desired["metadata"]["resourceVersion"] = secret["metadata"]["resourceVersion"]
        try:
            cluster.apply(desired)
            return keys
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _await_keys(cluster: Cluster, place: Place, pod: Object, keys: Sequence[PublicKey], progress: Progress) -> None:
    """Wait until the pod's own file has exactly these keys; a change of the pod makes its node look at once."""
    if not runs(pod, objects.CONTAINER):
        return
    expected = public_keys.text(keys)
    digest = hashlib.sha256(expected.encode()).hexdigest()[:16]
    path = cluster.path_of(cluster.kind("v1", "Pod"), place.pod)
    body = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {model.KEYS: digest}}}
    cluster.ask(Request(f"change the pod {place.pod}", "PATCH", path, (), body, MERGE))
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


# ---- its state -------------------------------------------------------------------------------------------------------


def wait(cluster: Cluster, place: Place, pod: Object, limit_s: float, progress: Progress) -> list[Finding]:
    """Wait until the pod is ready and its sshd answers; each change of its state is reported once."""
    end, before = time.monotonic() + limit_s, ""
    uid, subject = pod["metadata"]["uid"], f"Pod {place.pod}"
    while True:
        now = cluster.get(cluster.kind("v1", "Pod"), place.pod)
        if now is None or now["metadata"]["uid"] != uid:
            return [fail("pod", subject, "it was deleted meanwhile", f"`gpuctl eks pod {place.cluster}` makes it")]
        state = _state(cluster, now)
        if _without_sshd(now):
            message = "the image has no sshd: ssh cannot reach the pod"
            return [fail("pod", subject, message, "add --replace and --image with one that has openssh-server")]
        if state.ready:
            return [ok("pod", subject, state.summary), _ssh(cluster, place)]
        if state.hopeless or time.monotonic() > end:
            after = "" if state.hopeless else f" after {limit_s:g} s"
            hint = "the pod stays, and may become ready: run the command again; `kubectl describe pod` shows more"
            return [fail("pod", subject, f"it {_words(state)}{after}", hint)]
        if (text := _words(state)) != before:
            progress(f"{place.pod} {text}")
            before = text
        time.sleep(LOOK_S)


def _state(cluster: Cluster, pod: Object) -> PodProgress:
    """The pod's progress, with the reasons that events and claims give; without the right to read them, less."""
    events, claims = list[Object](), list[Object]()
    with contextlib.suppress(Forbidden):
        events = cluster.find_by(cluster.kind("v1", "Event"), f"involvedObject.uid={pod['metadata']['uid']}")
    with contextlib.suppress(Forbidden):
        claims = cluster.find(cluster.kind("v1", "PersistentVolumeClaim"), {})
    in_order = sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return pod_progress.state(pod, in_order, claims)


def _words(state: PodProgress) -> str:
    return state.summary + (f": {state.trouble}" if state.trouble else "")


def _without_sshd(pod: Object) -> bool:
    endings = [last_termination(status) for status in statuses(pod)]
    return any(ending is not None and ending.get("exitCode") == scripts.NO_SSHD for ending in endings)


def _ssh(cluster: Cluster, place: Place) -> Finding:
    """True sshd behind the port forward: it speaks first."""
    check, subject = "ssh", f"Pod {place.pod}"
    try:
        greeting = port_stream.first_bytes(cluster, place.pod, scripts.SSH_PORT, ANSWER_S)
    except Unreachable as error:
        return unknown_because(check, subject, error)
    except GpuctlError as error:
        return fail(check, subject, error.wrong, error.hint or LOGS)
    if not greeting.startswith(b"SSH-2.0"):
        return fail(check, subject, "something other than sshd answers on its port", LOGS)
    return ok(check, subject, "sshd answers through the port forward")


def jupyter_token(cluster: Cluster, place: Place, pod: Object) -> str:
    """Jupyter's token, from the Secret of the pod."""
    doing = f"open Jupyter of {place.pod}"
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or []}
    name = (volumes.get("host") or {}).get("secret", {}).get("secretName", "")
    secret = cluster.get(cluster.kind("v1", "Secret"), name) if name else None
    encoded = ((secret or {}).get("data") or {}).get(scripts.TOKEN)
    if not encoded:
        raise GpuctlError(doing, "its Secret has no token", "--replace makes the pod again")
    return base64.b64decode(encoded).decode()


# ---- its GPUs --------------------------------------------------------------------------------------------------------


def test_gpus(cluster: Cluster, place: Place) -> list[Finding]:
    """Run nvidia-smi, and a product of matrices with torch, in the pod."""
    pod = running(cluster, place, f"test the GPUs of {place.pod}")
    form = model.read_form(pod["metadata"].get("annotations") or {})
    gpus = form.gpus if form else None
    findings = list[Finding]()
    tests = (
        ("nvidia-smi", gpu_test.QUERY, gpu_test.judge_smi),
        ("torch", ("python3", "-c", gpu_test.TORCH), gpu_test.judge_torch),
    )
    for check, argv, judge in tests:
        try:
            code, output = _output(cluster, place, argv)
        except GpuctlError as error:
            findings.append(unknown(check, place.pod, error.wrong, error.hint))
            continue
        findings += judge(place.pod, gpus, code, output)
        if check == "nvidia-smi" and any(finding.verdict is Verdict.FAIL for finding in findings):
            break  # torch would only say the same again
    return findings


def _output(cluster: Cluster, place: Place, argv: Sequence[str]) -> tuple[int | None, str]:
    """Exit code and output of a program, with its errors if it printed nothing else; None if it does not exist."""
    try:
        done, output = pod_exec.read(cluster, place.pod, Command(argv, objects.CONTAINER, TEST_S))
    except NotStarted:
        return None, ""
    text = output.decode(errors="replace")
    return done.code, text if done.code == 0 and text.strip() else f"{text}\n{done.err}"
