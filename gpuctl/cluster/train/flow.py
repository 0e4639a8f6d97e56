"""Starts a training in all pods together, and ends one everywhere, with what is confirmed gone."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.cluster.environment import Object
from gpuctl.cluster.train import launch
from gpuctl.cluster.train.prepare import Ready
from gpuctl.cluster.train.watch import Training
from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.remote import detached
from gpuctl.remote.connection import Refused, in_all
from gpuctl.remote.detached import Label
from gpuctl.remote.model import Program, There

GRACE_S = 15.0
DS_FILE = "deepspeed_env"
GONE = ("the pod is gone", "the pod was made anew")  # with all that ran in it


@dataclass(frozen=True)
class Gone:
    """Whether nothing of a training is left in a pod; `wrong`: why nobody knows, `left`: what is still there."""

    pod: str
    wrong: str = ""
    left: Sequence[str] = ()

    @property
    def confirmed(self) -> bool:
        return not (self.wrong or self.left)


def start(ready: Ready, by: str) -> Training:
    """Begin it in its pods at the same time. Where one of them cannot, it is ended in all: `GpuctlError`."""
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"
    token = detached.token()
    pods = [ready.pods[rank] for rank in ready.launch.starts]
    training = Training(name, token, pods, gone(pods[0].cluster, ready.uids))
    label = Label(name, by, ready.launch.script)

    def begin(there: There) -> GpuctlError | None:
        program, files = _program(ready, ready.pods.index(there), token, name)
        try:
            detached.keep(there, program, label, files)
        except GpuctlError as error:
            return error
        return None

    errors = in_all(pods, begin)
    if wrong := [(there.pod, error) for there, error in zip(pods, errors, strict=True) if error]:
        raise _not_started(ready, wrong, end(training, ready.pods))
    return training


def _not_started(ready: Ready, wrong: Sequence[tuple[str, GpuctlError]], gone: Sequence[Gone]) -> GpuctlError:
    """In which pod it could not be begun, and where it may run nevertheless."""
    pod, first = wrong[0]
    unsure = [each.pod for each in gone if not each.confirmed]
    hint = f"not confirmed to have ended in {named(unsure)}: --stop tries again" if unsure else first.hint
    return GpuctlError(f"start {ready.launch.script} in {pod}", first.wrong, hint)


def _program(ready: Ready, rank: int, token: str, name: str) -> tuple[Program, Mapping[str, str]]:
    asked, env, files = ready.launch, launch.variables(ready.launch), {}
    if asked.uses_ssh:
        files = {DS_FILE: launch.passed_on(asked, ready.facts[0].told["ds_env"])}
        env["DS_ENV_FILE"] = f"{detached.folder(ready.pods[rank], name)}/{DS_FILE}"
    return Program(launch.command(asked, rank), asked.folder, env, GRACE_S, token), files


def end(training: Training, pods: Sequence[There]) -> list[Gone]:
    """End it in all pods at the same time, also what it began there by ssh; what is left of it in each."""

    def one(there: There) -> Gone:
        left: list[str] = []
        try:
            if any(there.pod == each.pod for each in training.pods):
                left += _stop(there, training.name)
            left += detached.sweep(there, training.token, GRACE_S)
        except GpuctlError as error:
            return Gone(there.pod, "" if _went(training, there.pod) else error.wrong)
        return Gone(there.pod, left=left)

    return in_all(pods, one)


def _went(training: Training, pod: str) -> bool:
    """Whether all of it there has gone with its pod."""
    with contextlib.suppress(GpuctlError):
        return training.gone(pod) in GONE
    return False


def _stop(there: There, name: str) -> Sequence[str]:
    try:
        return detached.stop(there, name).left
    except Refused:  # it has never been there, or another pod has taken its name
        return ()


def gone(cluster: Cluster, uids: Mapping[str, str]) -> Callable[[str], str]:
    """Asks why a pod that does not answer is not to be waited for; "" where it may come back. One try each time."""

    def why(pod: str) -> str:
        quick = Cluster(cluster.client, cluster.namespace, patience_s=0)
        return why_gone(quick.get(quick.kind("v1", "Pod"), pod), uids.get(pod, ""))

    return why


def why_gone(found: Object | None, uid: str) -> str:
    """Why the pod that had this uid does not come back, as the cluster has it now; "" where it may."""
    if found is None:
        return GONE[0]
    if found["metadata"]["uid"] != uid:
        return GONE[1]
    if "deletionTimestamp" in found["metadata"]:
        return "the pod is being deleted"
    status = found.get("status") or {}
    said = [str(status[key]) for key in ("reason", "message") if status.get(key)]
    return ": ".join(["the pod has ended", *said]) if status.get("phase") in ("Failed", "Succeeded") else ""
