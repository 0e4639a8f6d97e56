"""Reasons of waiting containers mean the same to every part of gpuctl that reads pods."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuctl.cluster.deploy import pod_progress
from gpuctl.domain.pod_status import CRASHED, IMAGE, INITIALIZING, NOT_CREATED, ending, last_termination
from gpuctl.kube.notices import Thresholds, pod_notices
from gpuctl.nccl.runners.kube.pod_state import why_waiting
from tests.rig.source_files import ROOT, python_files


def pod(state: dict[str, Any], version: int = 1) -> dict[str, Any]:
    meta = {"name": "lab-0", "namespace": "d", "uid": "u", "resourceVersion": str(version)}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"name": "ml", "image": "ml:1", "ready": False, "restartCount": 0, "state": state}
    spec = {"nodeName": "gpu-1", "containers": [{"name": "ml"}]}
    whole = {"phase": "Pending", "containerStatuses": [status]}
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": whole}


@pytest.mark.parametrize("reason", IMAGE)
def test_an_image_that_cannot_be_pulled_is_one_to_all(reason: str) -> None:
    before, now = pod({}), pod({"waiting": {"reason": reason, "message": "denied"}}, 2)
    assert pod_progress.state(now).trouble == f"the image ml:1 cannot be pulled ({reason}): denied"
    assert reason in why_waiting(now)
    assert any(reason in notice for notice in pod_notices(before, now, Thresholds()))


@pytest.mark.parametrize("reason", [CRASHED, *NOT_CREATED])
def test_a_container_that_does_not_start_is_worth_a_notice(reason: str) -> None:
    before, now = pod({}), pod({"waiting": {"reason": reason, "message": "no"}}, 2)
    assert pod_progress.state(now).trouble
    assert any(reason in notice for notice in pod_notices(before, now, Thresholds()))


@pytest.mark.parametrize(
    ("termination", "text"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "ran out of memory (OOMKilled)"),
        ({"exitCode": 139, "reason": "Error"}, "was killed by signal 11 (SIGSEGV)"),
        ({"exitCode": 0, "signal": 9}, "was killed by signal 9 (SIGKILL)"),
        ({"exitCode": 1, "reason": "Error"}, "ended with exit code 1"),
        ({"exitCode": 255}, "ended with exit code 255"),
    ],
)
def test_the_end_of_a_container_is_described(termination: dict[str, Any], text: str) -> None:
    assert ending(termination) == text
    assert last_termination({"state": {"waiting": {}}, "lastState": {"terminated": termination}}) == termination
    assert last_termination({"state": {"running": {}}}) is None


def test_the_reasons_are_spelled_in_one_place() -> None:
    spelled = re.compile("|".join(f'"{reason}"' for reason in (CRASHED, INITIALIZING, *IMAGE, *NOT_CREATED)))
    files = [path for path in python_files(ROOT / "gpuctl") if spelled.search(path.read_text())]
    assert files == [ROOT / "gpuctl/domain/pod_status.py"]
