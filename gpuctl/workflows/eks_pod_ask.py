"""Ask a program in a GPU pod until it answers as it should."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, unknown_because
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import Command
from gpuctl.eks.gpu_pod import objects
from gpuctl.workflows.eks_pod_read import LOOK_S

Judge = Callable[[int, str], Finding | None]


@dataclass(frozen=True)
class Question:
    """A shell program that asks. `judge`: finding by exit code and output, None to ask again; `late`: the last one."""

    check: str
    script: str
    answer_s: float
    judge: Judge
    late: Callable[[int, str], Finding]


def until(cluster: Cluster, pod: str, question: Question, limit_s: float) -> Finding:
    """Ask until there is a finding, at least once; UNKNOWN if the pod cannot be asked."""
    end = time.monotonic() + limit_s
    command = Command(("sh", "-c", question.script), objects.CONTAINER, question.answer_s)
    while True:
        try:
            done, output = pod_exec.read(cluster, pod, command)
        except GpuctlError as error:
            return unknown_because(question.check, f"Pod {pod}", error)
        text = output.decode(errors="replace")
        finding = question.judge(done.code, text)
        if finding is not None:
            return finding
        if time.monotonic() > end:
            return question.late(done.code, text)
        time.sleep(LOOK_S)


def after(limit_s: float) -> str:
    """Text for how long was waited; "" for a question that was asked once."""
    return f" after {limit_s:g} s" if limit_s else ""
