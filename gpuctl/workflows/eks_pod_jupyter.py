"""Jupyter of a GPU pod: whether it answers to its token, and that token."""

from __future__ import annotations

import base64
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain.findings import Finding, fail, ok, unknown
from gpuctl.edges import ports
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.eks.gpu_pod import model, objects, scripts
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod import LOGS
from gpuctl.workflows.eks_pod_ask import Question, after, until

Object = dict[str, Any]
CHECK, NOT_IN_IMAGE = "jupyter", "the image has no jupyter-lab"
START_S, ANSWER_S = 60.0, 20.0  # a start from a cold disk takes many seconds


def wait(cluster: Cluster, place: Place, pod: Object, limit_s: float = START_S) -> list[Finding]:
    """Wait until Jupyter of a running pod answers to its token; no finding for a pod without Jupyter."""
    if not has_jupyter(pod):
        return []
    subject = f"Pod {place.pod}"

    def judge(code: int, _: str) -> Finding | None:
        if code == 0:
            return ok(CHECK, subject, "Jupyter answers to its token, and to nobody without it")
        if code == scripts.NO_JUPYTER:
            hint = "add --replace and --image with one that has it, or --no-jupyter"
            return fail(CHECK, subject, NOT_IN_IMAGE, hint)
        if code == scripts.NO_PYTHON:
            return unknown(CHECK, subject, "no python3 in the image to ask Jupyter with", LOGS)
        return None

    def late(code: int, _: str) -> Finding:
        wrong = "takes no token, or something else listens on its port" if code == scripts.ANOTHER else ""
        return fail(CHECK, subject, f"Jupyter {wrong or 'does not answer'}{after(limit_s)}", LOGS)

    question = Question(CHECK, scripts.jupyter_answers(), ANSWER_S, judge, late)
    return [until(cluster, place.pod, question, limit_s)]


def has_jupyter(pod: Object) -> bool:
    """True if the pod was made with Jupyter."""
    form = model.read_form(pod["metadata"].get("annotations") or {})
    return form is not None and form.jupyter


def token(cluster: Cluster, place: Place, pod: Object) -> str:
    """Jupyter's token, which is of this pod alone; `InvalidInput` for a pod without Jupyter."""
    doing = f"use Jupyter of {place.pod}"
    check(place, pod)
    secret = cluster.get(cluster.kind("v1", "Secret"), objects.host_secret(pod))
    data = ((secret or {}).get("data") or {}).get(scripts.TOKEN)
    if not data:
        raise GpuctlError(doing, "its Secret holds no token", f"`gpuctl eks pod {place.cluster} --replace` makes one")
    return base64.b64decode(data).decode()


def check(place: Place, pod: Object) -> None:
    """`InvalidInput` for a pod that was made without Jupyter."""
    if not has_jupyter(pod):
        hint = f"`gpuctl eks pod {place.cluster} --jupyter --replace` makes it again with Jupyter; its workspace stays"
        raise InvalidInput(f"use Jupyter of {place.pod}", "the pod was made without Jupyter", hint)


def local_port(number: int | None) -> int:
    """Port of this machine; None for 8888, or the next free one. `InvalidInput` if it is in use."""
    usual = scripts.JUPYTER_PORT
    if number is None:
        return next((port for port in range(usual, usual + 100) if ports.free(port)), usual)
    if not ports.free(number):
        raise InvalidInput(
            "forward Jupyter", f"the local port {number} is in use, or not permitted", "choose another with --local"
        )
    return number
