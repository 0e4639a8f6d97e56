"""Slurm of a GPU pod: whether its node is ready, and offers the GPUs of the pod."""

from __future__ import annotations

import time
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, fail, unknown_because
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import Command
from gpuctl.eks.gpu_pod import model, objects, scripts, slurm
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod_read import LOOK_S

Object = dict[str, Any]
START_S, ANSWER_S = 60.0, 30.0  # sinfo waits for a controller that starts


def wait(cluster: Cluster, place: Place, pod: Object, limit_s: float = START_S) -> list[Finding]:
    """Wait until Slurm's node is ready; no finding for a pod without Slurm."""
    form = model.read_form(pod["metadata"].get("annotations") or {})
    if form is None or not form.slurm:
        return []
    subject, end = f"Pod {place.pod}", time.monotonic() + limit_s
    command = Command(("sh", "-c", scripts.slurm_answers()), objects.CONTAINER, ANSWER_S)
    while True:
        try:
            done, output = pod_exec.read(cluster, place.pod, command)
        except GpuctlError as error:
            return [unknown_because(slurm.CHECK, subject, error)]
        text = output.decode(errors="replace")
        if done.code == scripts.NO_SLURM:
            hint = "add --replace and --image with one that `gpuctl eks image build` made, or --no-slurm"
            return [fail(slurm.CHECK, subject, "the image lacks munge or Slurm", hint)]
        if done.code == 0 and slurm.is_ready(text):
            return [slurm.judge(place.pod, form.gpus, text)]
        if time.monotonic() > end:
            state = slurm.state(text)[0]
            wrong = f"its node is {state}" if state else "sinfo does not answer"
            hint = f"{scripts.SLURM_WORK} in the pod has the messages of slurmctld, slurmd and munged"
            return [fail(slurm.CHECK, subject, f"Slurm: {wrong} after {limit_s:g} s", hint)]
        time.sleep(LOOK_S)
