"""Slurm of a GPU pod: whether its node is ready, and offers the GPUs of the pod."""

from __future__ import annotations

from typing import Any

from gpuctl.domain.findings import Finding, fail
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.eks.gpu_pod import model, scripts, slurm
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod_ask import Question, after, until

Object = dict[str, Any]
START_S, ANSWER_S = 60.0, 30.0  # sinfo waits for a controller that starts


def wait(cluster: Cluster, place: Place, pod: Object, limit_s: float = START_S) -> list[Finding]:
    """Wait until Slurm's node is ready; no finding for a pod without Slurm."""
    form = model.read_form(pod["metadata"].get("annotations") or {})
    if form is None or not form.slurm:
        return []
    subject, gpus = f"Pod {place.pod}", form.gpus

    def judge(code: int, text: str) -> Finding | None:
        if code == scripts.NO_SLURM:
            hint = "add --replace and --image with one that `gpuctl eks image build` made, or --no-slurm"
            return fail(slurm.CHECK, subject, "the image lacks munge or Slurm", hint)
        return slurm.judge(place.pod, gpus, text) if code == 0 and slurm.is_ready(text) else None

    def late(_: int, text: str) -> Finding:
        state = slurm.state(text)[0]
        wrong = f"its node is {state}" if state else "sinfo does not answer"
        hint = f"{scripts.SLURM_WORK} in the pod has the messages of slurmctld, slurmd and munged"
        return fail(slurm.CHECK, subject, f"Slurm: {wrong}{after(limit_s)}", hint)

    question = Question(slurm.CHECK, scripts.slurm_answers(), ANSWER_S, judge, late)
    return [until(cluster, place.pod, question, limit_s)]
