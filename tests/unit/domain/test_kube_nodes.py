"""States of Kubernetes nodes: which have GPUs, and which state is a fault."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.domain import kube_nodes
from gpuctl.domain.findings import Verdict

READY = {"type": "Ready", "status": "True"}


def node(
    *conditions: dict[str, str], gpus: str = "8", offered: str = "8", labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    status = {
        "conditions": list(conditions or (READY,)),
        "capacity": {"cpu": "192", "nvidia.com/gpu": gpus},
        "allocatable": {"cpu": "190", "nvidia.com/gpu": offered},
    }
    return {"metadata": {"name": "n1", "labels": labels or {}}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("made", "has"),
    [
        (node(), True),
        (node(gpus="0", offered="0"), False),
        (node(gpus="0", offered="0", labels={"nvidia.com/gpu.present": "true"}), True),
        (node(gpus="0", offered="0", labels={"nvidia.com/gpu.present": "false"}), False),
        (node(gpus="0", offered="0", labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}), True),
        ({"metadata": {"name": "n1"}}, False),
        ({"metadata": {"name": "n1"}, "status": {"capacity": {"nvidia.com/mig-1g.10gb": "7"}}}, True),
    ],
)
def test_a_node_has_gpus_by_what_it_offers_or_by_its_labels(made: dict[str, Any], has: bool) -> None:
    assert kube_nodes.has_gpus(made) is has


@pytest.mark.parametrize(
    ("made", "verdict", "text"),
    [
        (node({"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"}), "FAIL", "Kubelet stopped"),
        (node({"type": "Ready", "status": "False", "reason": "CNI"}), "FAIL", "its kubelet is not ready: CNI"),
        ({**node(), "status": {"capacity": {"nvidia.com/gpu": "8"}}}, "FAIL", "no reason was given"),
        (
            node(READY, {"type": "DiskPressure", "status": "True", "reason": "full"}),
            "WARN",
            "DiskPressure is True: full",
        ),
        (
            node(READY, {"type": "AcceleratedHardwareReady", "status": "False", "reason": "Xid"}),
            "WARN",
            "is False: Xid",
        ),
        (node(READY, {"type": "MemoryPressure", "status": "Unknown"}), "WARN", "MemoryPressure is unknown"),
        (node(offered="6"), "FAIL", "the device plugin has withdrawn 2 of 8 GPUs"),
        (node(gpus="0", offered="0"), "FAIL", "it offers none to pods"),
        (node(unschedulable=True), "WARN", "it is cordoned"),
    ],
)
def test_a_state_that_is_not_as_it_should_be_is_a_finding(made: dict[str, Any], verdict: str, text: str) -> None:
    messages = {one.message: one.verdict for one in kube_nodes.findings(made)}
    [found] = [kind for message, kind in messages.items() if text in message]
    assert found is Verdict[verdict]


def test_a_node_that_serves_has_no_finding() -> None:
    fine = node(
        READY,
        {"type": "DiskPressure", "status": "False"},
        {"type": "NetworkUnavailable", "status": "False"},
        {"type": "StorageReady", "status": "True"},
    )
    assert list(kube_nodes.findings(fine)) == []
