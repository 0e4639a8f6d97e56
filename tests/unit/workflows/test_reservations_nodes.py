"""Hosts as nodes of the reservation service, by the facts of the probe."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.hosts.model import Target
from gpuctl.reservations.database import Stored
from gpuctl.reservations.rules.model import Node
from gpuctl.workflows import nodes, reservations_nodes
from gpuctl.workflows.reservations_nodes import FleetRequest, node_of

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
        (facts(gpu(0), slurmd=None), "lab-1: it is not known whether Slurm"),
        (facts(gpu(0), kubelet=None), "lab-1: it is not known whether Kubernetes"),
        (facts(gpu(0, mig=None, unread={"mig": "odd"})), "lab-1: MIG could not be read on GPU 0"),
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


def asked(monkeypatch: pytest.MonkeyPatch, read: dict[str, Any], unasked: dict[str, str], *known: Node) -> list[str]:
    """Reads two hosts whose answers are these; the result are the notes to the operator, and the doubts."""
    answers = SimpleNamespace(nodes=read, unasked=unasked)
    monkeypatch.setattr(nodes, "ask", lambda *_: answers)
    notes: list[str] = []
    hosts = [Target("lab-1", address="10.0.0.1"), Target("lab-2", address="10.0.0.2")]
    stored = Stored("id", "desk:/state", {node.name: node for node in known})
    fleet = reservations_nodes.fleet(hosts, None, stored, notes.append)
    assert [node.name for node in fleet.nodes] == ["lab-1", "lab-2"]
    return [*notes, *fleet.doubts.values()]


def test_one_host_with_two_names_is_refused_also_by_what_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="lab-1 and lab-2 are the same host: both have GPU-0"):
        asked(monkeypatch, {"lab-1": facts(gpu(0)), "lab-2": facts(gpu(0))}, {})
    known = Node("lab-2", "h100", (None,), uuids=("GPU-0",))
    with pytest.raises(InvalidInput, match="are the same host"):
        asked(monkeypatch, {"lab-1": facts(gpu(0))}, {"lab-2": "no route"}, known)


def test_a_known_host_that_answers_badly_is_kept_in_doubt_and_a_new_one_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"lab-1": facts(gpu(0)), "lab-2": facts(gpu(0, uuid="GPU-1", mig="Enabled"))}
    with pytest.raises(InvalidInput, match="MIG is enabled"):
        asked(monkeypatch, answers, {})
    [note, doubt] = asked(monkeypatch, answers, {}, Node("lab-2", "h100", (None,), uuids=("GPU-1",)))
    assert "given to nobody until that is repaired" in note
    assert doubt == "lab-2: MIG is enabled on GPU 0"


def test_a_host_in_doubt_is_read_again_like_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = SimpleNamespace(nodes={"lab-1": facts(gpu(0, mig="Enabled"))}, unasked={})
    monkeypatch.setattr(nodes, "ask", lambda *_: answers)
    known = Node("lab-1", "h100", (None,), uuids=("GPU-0",))
    fleet = reservations_nodes.fleet([Target("lab-1")], None, Stored("id", "desk:/state", {"lab-1": known}), print)
    assert fleet.reread is not None
    with pytest.raises(InvalidInput, match="MIG is enabled"):
        fleet.reread("lab-1")
    answers.nodes = {"lab-1": facts(gpu(0))}
    assert fleet.reread("lab-1") == known
    answers.unasked = {"lab-1": "no route"}
    with pytest.raises(OSError, match="no route"):
        fleet.reread("lab-1")


@pytest.mark.parametrize(
    "lines",
    [
        "a ansible_host=10.0.0.1\nb ansible_host=10.0.0.1\n",
        "a ansible_connection=local\nb ansible_host=127.0.0.1\n",
        "a ansible_host=localhost\nb ansible_host=127.0.0.1\n",
    ],
)
def test_two_names_with_one_address_are_refused_before_anything_is_asked(tmp_path: Path, lines: str) -> None:
    (tmp_path / "lab.ini").write_text(lines)
    with pytest.raises(InvalidInput, match="a and b are the same host"):
        reservations_nodes.chosen(FleetRequest(str(tmp_path / "lab.ini")))
