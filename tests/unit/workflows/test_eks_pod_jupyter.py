"""Jupyter of a GPU pod: what is reported of it, and whose token is printed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.domain import public_keys
from gpuctl.edges.kube.pod_exec import Done
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import model, objects, scripts
from gpuctl.eks.gpu_pod.model import Form, Options
from gpuctl.workflows import eks_pod, eks_pod_ask, eks_pod_jupyter
from gpuctl.workflows.eks_access import Place
from gpuctl.workflows.eks_pod import PodRequest
from tests.rig.standin_namespace import StandinNamespace

PLACE = Place("lab", "gpu", "lab", "team", [])
KEYS = public_keys.parse(pair()[1], "agent", "use it")


def made(*, jupyter: bool | None) -> tuple[StandinNamespace, Any]:
    cluster = StandinNamespace()
    request = PodRequest(Options(image="registry/ml:1", jupyter=jupyter), KEYS)
    return cluster, eks_pod.ensure(cluster, PLACE, request, lambda _: None)


def answer(patch: pytest.MonkeyPatch, *codes: int | GpuctlError) -> None:
    rest: Iterator[int | GpuctlError] = iter(codes)

    def read(*_: object) -> tuple[Done, bytes]:
        code = next(rest)
        if isinstance(code, GpuctlError):
            raise code
        return Done(code, ""), b""

    patch.setattr("gpuctl.edges.kube.pod_exec.read", read)
    patch.setattr(eks_pod_ask, "LOOK_S", 0)


@pytest.mark.parametrize(
    ("codes", "limit_s", "verdict", "message"),
    [
        ((1, 1, 0), 60, "OK", "answers to its token"),
        ((scripts.NO_JUPYTER,), 60, "FAIL", "no jupyter-lab"),
        ((1,), -1, "FAIL", "does not answer"),
        ((scripts.ANOTHER,), -1, "FAIL", "takes no token"),
        ((scripts.NO_PYTHON,), 60, "UNKNOWN", "no python3"),
        ((GpuctlError("run a program", "no answer"),), 60, "UNKNOWN", "no answer"),
    ],
)
def test_jupyter_is_ok_once_it_listens(
    codes: tuple[int | GpuctlError, ...], limit_s: float, verdict: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, pod = made(jupyter=True)
    answer(monkeypatch, *codes)
    [finding] = eks_pod_jupyter.wait(cluster, PLACE, pod, limit_s)
    assert str(finding.verdict) == verdict
    assert message in finding.message


def test_a_pod_without_jupyter_has_no_finding_no_token_and_is_refused() -> None:
    cluster, pod = made(jupyter=None)
    assert eks_pod_jupyter.wait(cluster, PLACE, pod) == []
    with pytest.raises(InvalidInput, match="made without Jupyter") as refused:
        eks_pod_jupyter.token(cluster, PLACE, pod)
    assert "--jupyter --replace" in refused.value.hint


def test_each_pod_has_a_token_in_its_secret_alone() -> None:
    tokens = []
    for _ in range(2):
        cluster, pod = made(jupyter=True)
        tokens.append(eks_pod_jupyter.token(cluster, PLACE, pod))
        assert tokens[-1] not in str(pod)
        secret = cluster.get(cluster.kind("v1", "Secret"), objects.host_secret(pod))
        assert secret is not None
        assert base64.b64decode(secret["data"][scripts.TOKEN]).decode() == tokens[-1]
    assert len(set(tokens)) == 2
    assert all(len(token) == 64 for token in tokens)


def test_an_existing_pod_without_jupyter_is_not_changed_in_silence() -> None:
    assert model.differences(Options(jupyter=True), Form("a")) == ["jupyter: False, not True"]
