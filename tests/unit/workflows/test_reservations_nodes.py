"""Hosts as nodes of the reservation service, by the facts of the probe."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.hosts.model import Target
from gpuctl.workflows.reservations_nodes import node_of

H100 = "NVIDIA H100 80GB HBM3"


def gpu(minor: int | None, **values: Any) -> dict[str, Any]:
    return {"minor": minor, "uuid": f"GPU-{minor}", "mig": "Disabled", "model": H100, **values}


def facts(*gpus: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"gpus": list(gpus), "slurmd": False, "kubelet": False, "processes": {}, "unread": {}, **values}


def test_uuids_are_in_the_order_of_device_files_not_of_the_bus() -> None:
    target = Target("lab-1", address="10.0.0.1", port=2222)
    node = node_of(target, facts(gpu(1), gpu(0)), None)
    assert (node.name, node.gpu_type, node.uuids) == ("lab-1", "h100", ("GPU-0", "GPU-1"))
    assert (node.address, node.port, node.allocated) == ("10.0.0.1", 2222, (None, None))


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (facts(gpus=None, unread={"gpus": "the driver is not loaded"}), "lab-1: the driver is not loaded"),
        (facts(), "lab-1: it has no GPU"),
        (facts(gpu(0), gpu(None)), "lab-1: the driver does not name the UUID and device file of each of its 2 GPUs"),
        (facts(gpu(0, uuid=None)), "lab-1: the driver does not name the UUID"),
        (facts(gpu(0), gpu(2)), "lab-1: the driver does not name the UUID"),
        (facts(gpu(0, mig="Enabled")), "lab-1: MIG is enabled on GPU 0"),
        (facts(gpu(0), slurmd=True), "lab-1: Slurm gives out its GPUs already"),
        (facts(gpu(0), kubelet=True), "lab-1: Kubernetes gives out its GPUs already"),
        (facts(gpu(0), gpu(1, model="NVIDIA A10")), "lab-1: the GPU type is not clear: NVIDIA A10, NVIDIA H100"),
    ],
)
def test_a_host_whose_gpus_are_unknown_or_not_ours_is_refused(read: dict[str, Any], wrong: str) -> None:
    with pytest.raises(GpuctlError, match=wrong):
        node_of(Target("lab-1"), read, None)


def test_a_type_can_be_named_for_gpus_that_differ() -> None:
    assert node_of(Target("lab-1"), facts(gpu(0), gpu(1, model="NVIDIA A10")), "Mixed").gpu_type == "mixed"
    with pytest.raises(InvalidInput):
        node_of(Target("lab-1"), facts(gpu(0, model="GPU of unknown model")), None)
