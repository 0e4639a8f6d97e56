"""Start a training in all pods together, and end one everywhere with confirmation."""

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
from gpuctl.remote.connection import Refused, run_in_all
from gpuctl.remote.detached import Label
from gpuctl.remote.model import PodTarget, Program

DS_FILE = "deepspeed_env"
GONE = ("the pod is gone", "the pod was recreated")  # with everything that ran in it


@dataclass(frozen=True)
class EndResult:
    """Result of ending a training in one pod; `wrong`: why that is unknown, `left`: processes still running."""

    pod: str
    wrong: str = ""
    left: Sequence[str] = ()

    @property
    def confirmed(self) -> bool:
        return not (self.wrong or self.left)


def start(ready: Ready, actor: str) -> Training:
    """Start a training in its pods concurrently. If one pod cannot start it, end it in all: `GpuctlError`."""
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"
    token = detached.token()
    pods = [ready.pods[rank] for rank in ready.launch.starts]
    training = Training(name, token, pods, gone(pods[0].cluster, ready.uids), ready.grace_s)
    label = Label(name, actor, ready.launch.script)

    def begin(target: PodTarget) -> GpuctlError | None:
        program, files = _program(ready, ready.pods.index(target), token, name)
        try:
            detached.start(target, program, label, files)
        except GpuctlError as error:
            return error
        return None

    errors = run_in_all(pods, begin)
    if wrong := [(target.pod, error) for target, error in zip(pods, errors, strict=True) if error]:
        raise _not_started(ready, wrong, end(training, ready.pods))
    return training


def _not_started(ready: Ready, wrong: Sequence[tuple[str, GpuctlError]], gone: Sequence[EndResult]) -> GpuctlError:
    """Name the pod that could not start it, and pods where it may run nevertheless."""
    pod, first = wrong[0]
    unsure = [result.pod for result in gone if not result.confirmed]
    hint = f"not confirmed to have ended in {named(unsure)}: --stop tries again" if unsure else first.hint
    return GpuctlError(f"start {ready.launch.script} in {pod}", first.wrong, hint)


def _program(ready: Ready, rank: int, token: str, name: str) -> tuple[Program, Mapping[str, str]]:
    launch_spec, env, files = ready.launch, launch.variables(ready.launch), {}
    if launch_spec.uses_ssh:
        files = {DS_FILE: launch.passed_on(launch_spec, ready.facts[0].answer["ds_env"])}
        env["DS_ENV_FILE"] = f"{detached.run_folder(ready.pods[rank], name)}/{DS_FILE}"
    return Program(launch.command(launch_spec, rank), launch_spec.folder, env, ready.grace_s, token), files


def end(training: Training, pods: Sequence[PodTarget]) -> list[EndResult]:
    """End a training in all pods concurrently, including processes started by ssh; report what is left in each."""

    def end_in(target: PodTarget) -> EndResult:
        left: list[str] = []
        try:
            if any(target.pod == pod.pod for pod in training.pods):
                left += _stop(target, training.name)
            left += detached.sweep(target, training.token, training.grace_s)
        except GpuctlError as error:
            return EndResult(target.pod, "" if _pod_is_gone(training, target.pod) else error.wrong)
        return EndResult(target.pod, left=left)

    return run_in_all(pods, end_in)


def _pod_is_gone(training: Training, pod: str) -> bool:
    """Return whether the pod is gone, and with it everything that ran there."""
    with contextlib.suppress(GpuctlError):
        return training.gone(pod) in GONE
    return False


def _stop(target: PodTarget, name: str) -> Sequence[str]:
    try:
        return detached.stop(target, name).left
    except Refused:  # it never ran there, or another pod has taken its name
        return ()


def gone(cluster: Cluster, uids: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that says why a silent pod will not come back; "" if it may. One attempt each time."""

    def why(pod: str) -> str:
        quick = Cluster(cluster.client, cluster.namespace, patience_s=0)
        return why_gone(quick.get(quick.kind("v1", "Pod"), pod), uids.get(pod, ""))

    return why


def why_gone(pod: Object | None, uid: str) -> str:
    """Return why the pod with this uid does not come back; "" if it may."""
    if pod is None:
        return GONE[0]
    if pod["metadata"]["uid"] != uid:
        return GONE[1]
    if "deletionTimestamp" in pod["metadata"]:
        return "the pod is being deleted"
    status = pod.get("status") or {}
    reasons = [str(status[key]) for key in ("reason", "message") if status.get(key)]
    return ": ".join(["the pod has ended", *reasons]) if status.get("phase") in ("Failed", "Succeeded") else ""
