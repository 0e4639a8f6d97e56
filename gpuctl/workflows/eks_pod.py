"""A GPU pod in a cluster: make it, wait until ssh answers, and test its GPUs."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.cluster.deploy import pod_progress
from gpuctl.cluster.deploy.pod_progress import PodProgress
from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.domain.findings import Finding, Verdict, fail, ok, unknown, unknown_because
from gpuctl.domain.kube_errors import Conflict, Forbidden
from gpuctl.domain.pod_status import last_termination, runs, statuses
from gpuctl.domain.public_keys import PublicKey
from gpuctl.edges.kube import pod_exec, port_stream
from gpuctl.edges.kube.cluster import Cluster, Request, name_of
from gpuctl.edges.kube.pod_exec import Command, NotStarted
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import gpu_test, model, objects, scripts
from gpuctl.eks.gpu_pod.model import Form, Options
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod_keys import add_keys, await_keys, keys_secret
from gpuctl.workflows.eks_pod_read import LOOK_S, await_end, is_ending, ours, pod_of, pod_or_ending

Object = dict[str, Any]
Progress = Callable[[str], object]
MERGE = "application/merge-patch+json"
AS_GPUCTL = (("fieldManager", "gpuctl"),)
ANSWER_S = 20.0
TEST_S = 180.0  # importing torch from a cold disk takes a minute
NO_REHEARSAL = "does not support dry run"  # a webhook with side effects (Kubernetes, dryRun)
LOGS = "`kubectl logs` and `kubectl describe pod` show more"


# ---- the pod ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PodRequest:
    """Inputs. `replace`: delete an existing pod, and make it again on its workspace."""

    options: Options
    keys: Sequence[PublicKey]
    replace: bool = False


def ensure(cluster: Cluster, place: Place, request: PodRequest, progress: Progress) -> Object:
    """Make the pod, or take the one that exists; add the keys. Each step can be repeated.

    All that can be refused is refused before the first write. The values of the pod are written to the Secret of keys
    before an existing one is deleted: a repeated command reads them there.
    """
    doing = f"make the pod {place.pod}"
    model.check_options(request.options)
    existing = pod_or_ending(cluster, place)
    parts = _parts(cluster, place)
    form = _form(existing, parts.keys)
    keep = existing is not None and not request.replace and not _has_ended(existing) and not is_ending(existing)
    if keep:
        _check_same(place, request.options, form)
    desired = form if keep and form else model.form_of(request.options, form, doing)
    if parts.claim is None:
        _check_class(cluster, desired.storage_class)
    else:
        _check_workspace(parts.claim, request.options)
    if not keep:
        _rehearse(cluster, place, desired, parts, _Running(existing, form))
    authorized = add_keys(cluster, place, request.keys, desired, progress)
    if existing is not None and keep:
        await_keys(cluster, place, existing, authorized, progress)
        return existing
    if existing is not None:
        if not is_ending(existing):
            progress(f"deleting the pod {place.pod}; its workspace stays")
            cluster.delete(existing)
        await_end(cluster, place, existing)
    return _make(cluster, place, desired)


@dataclass(frozen=True)
class _Parts:
    """Objects of the pod that exist already and outlive it."""

    keys: Object | None
    claim: Object | None


def _parts(cluster: Cluster, place: Place) -> _Parts:
    keys = keys_secret(cluster, place)
    claim = ours(cluster, place, "PersistentVolumeClaim", model.workspace_name(place.pod))
    ours(cluster, place, "ConfigMap", model.start_name(place.pod))
    return _Parts(keys, claim)


def _form(pod: Object | None, keys: Object | None) -> Form | None:
    """Values to make the pod from: those of a pod that stays; else those that a command wrote before a delete."""
    of_pod, written = (
        model.read_form((item or {}).get("metadata", {}).get("annotations") or {}) for item in (pod, keys)
    )
    return (written or of_pod) if pod is None or is_ending(pod) else of_pod


@dataclass(frozen=True)
class _Running:
    """The pod that is replaced, if there is one, and its form."""

    pod: Object | None
    form: Form | None


def _rehearse(cluster: Cluster, place: Place, form: Form, parts: _Parts, before: _Running) -> None:
    """Have the cluster check the new pod and its claim under a temporary name, so that a refusal changes nothing."""
    name = f"{place.pod}-{secrets.token_hex(4)}"
    drafts = [objects.pod(name, form, f"{name}-host", "none")]
    drafts += [] if parts.claim else [objects.workspace(name, form)]
    for draft in drafts:
        path = cluster.path_of(cluster.kind_of(draft))
        doing = f"make the {'pod' if draft['kind'] == 'Pod' else 'workspace of the pod'} {place.pod}"
        try:
            cluster.ask(Request(doing, "POST", path, (*AS_GPUCTL, ("dryRun", "All")), draft))
        except GpuctlError as error:
            if _is_passable(error, form, before):
                continue
            if before.pod is None or is_ending(before.pod) or isinstance(error, Unreachable):
                raise
            stays = "the pod stays as it is"
            if NO_REHEARSAL in error.wrong or " quota " in error.wrong:  # it may be taken once the old pod is gone
                stays += f"; if it may end: `kubectl delete pod {place.pod}`, then run the command again"
            raise type(error)(doing, error.wrong, f"{error.hint}; {stays}" if error.hint else stays) from error


def _is_passable(error: GpuctlError, form: Form, before: _Running) -> bool:
    """True for a refusal of the rehearsal alone."""
    if before.pod is None:
        return NO_REHEARSAL in error.wrong
    # The quota counts the old pod, too, which the new one does not exceed.
    fits = before.form is not None and not model.demands_more(form, before.form)
    return isinstance(error, Forbidden) and " quota " in error.wrong and fits


def running(cluster: Cluster, place: Place, doing: str) -> Object:
    """The pod, which runs; else an error with the reason."""
    pod = pod_of(cluster, place)
    if pod is None:
        hint = f"`gpuctl eks pod {place.cluster}` makes it"
        raise InvalidInput(doing, f"the namespace {cluster.namespace} has no pod {place.pod}", hint)
    if not runs(pod, objects.CONTAINER):
        state = progress_of(cluster, pod)
        raise GpuctlError(doing, f"the pod {place.pod} {_words(state)}", LOGS)
    return pod


def _check_same(place: Place, options: Options, form: Form | None) -> None:
    doing = f"use the pod {place.pod}"
    hint = "add --replace to make the pod again; its workspace stays, and what runs in it ends"
    if form is None:
        raise InvalidInput(doing, "its annotation does not name the values it was made from", hint)
    if different := model.differences(options, form):
        raise InvalidInput(doing, f"it exists with other values ({'; '.join(different)})", hint)


def _check_class(cluster: Cluster, name: str) -> None:
    """`InvalidInput` if the cluster has no such storage class; without the right to read it, nothing is known."""
    if not name:
        return
    with contextlib.suppress(Forbidden):
        if cluster.get(cluster.kind("storage.k8s.io/v1", "StorageClass"), name) is None:
            hint = "`kubectl get storageclass` lists them"
            raise InvalidInput(f"use the storage class {name}", "the cluster does not have it", hint)


def _check_workspace(claim: Object, options: Options) -> None:
    """`InvalidInput` for options that an existing workspace does not have: it is never changed."""
    name = claim["metadata"]["name"]
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


def _make(cluster: Cluster, place: Place, form: Form) -> Object:
    """Make volume, scripts, host key and pod. The host key is of this pod alone, and goes with it."""
    doing = f"make the pod {place.pod}"
    claims = cluster.kind("v1", "PersistentVolumeClaim")
    if cluster.get(claims, model.workspace_name(place.pod)) is None:
        workspace = objects.workspace(place.pod, form)
        with contextlib.suppress(Conflict):  # somebody else made it at this moment
            cluster.ask(Request(f"make {name_of(workspace)}", "POST", cluster.path_of(claims), AS_GPUCTL, workspace))
    cluster.apply(objects.start(place.pod, form))
    private, public = pair()
    secret = objects.host(place.pod, secrets.token_hex(4), private, secrets.token_hex(32) if form.jupyter else "")
    cluster.apply(secret)
    body = objects.pod(place.pod, form, secret["metadata"]["name"], public)
    path = cluster.path_of(cluster.kind("v1", "Pod"))
    try:
        pod = cluster.once(Request(doing, "POST", path, AS_GPUCTL, body))
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


# ---- its state -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patience:
    """Limit of a wait in seconds, and how sshd's greeting is read."""

    limit_s: float
    greeting: Callable[[Cluster, str, int, float], bytes] = port_stream.first_bytes


def wait(cluster: Cluster, place: Place, pod: Object, patience: Patience, progress: Progress) -> list[Finding]:
    """Wait until the pod is ready and its sshd answers; each change of its state is reported once."""
    end, before = time.monotonic() + patience.limit_s, ""
    uid, subject = pod["metadata"]["uid"], f"Pod {place.pod}"
    while True:
        now = cluster.get(cluster.kind("v1", "Pod"), place.pod)
        if now is None or now["metadata"]["uid"] != uid:
            return [fail("pod", subject, "it was deleted meanwhile", f"`gpuctl eks pod {place.cluster}` makes it")]
        state, late = progress_of(cluster, now), time.monotonic() > end
        text = _words(state)
        if lacks_sshd(now):
            message = "the image has no sshd: ssh cannot reach the pod"
            return [fail("pod", subject, message, "add --replace and --image with one that has openssh-server")]
        if state.ready:
            ssh, forbidden = _ssh(cluster, place, patience)
            if late or forbidden or ssh.verdict is Verdict.OK:
                return [ok("pod", subject, state.summary), ssh]
            text += f"; {ssh.message}"
        elif state.hopeless or late:
            after = "" if state.hopeless else f" after {patience.limit_s:g} s"
            hint = f"the pod stays, and may become ready: run the command again; {LOGS}"
            return [fail("pod", subject, f"it {_words(state)}{after}", hint)]
        if text != before:
            progress(f"{place.pod} {text}")
            before = text
        time.sleep(LOOK_S)


def progress_of(cluster: Cluster, pod: Object) -> PodProgress:
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


def lacks_sshd(pod: Object) -> bool:
    endings = [last_termination(status) for status in statuses(pod)]
    return any(ending is not None and ending.get("exitCode") == scripts.NO_SSHD for ending in endings)


def _ssh(cluster: Cluster, place: Place, patience: Patience) -> tuple[Finding, bool]:
    """True sshd behind the port forward: it speaks first. The second value: no later attempt can succeed."""
    check, subject = "ssh", f"Pod {place.pod}"
    try:
        greeting = patience.greeting(cluster, place.pod, scripts.SSH_PORT, ANSWER_S)
    except Unreachable as error:
        return unknown_because(check, subject, error), False
    except GpuctlError as error:
        return fail(check, subject, error.wrong, error.hint or LOGS), isinstance(error, Forbidden)
    if not greeting.startswith(b"SSH-2.0"):
        return fail(check, subject, "something other than sshd answers on its port", LOGS), False
    return ok(check, subject, "sshd answers through the port forward"), False


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
