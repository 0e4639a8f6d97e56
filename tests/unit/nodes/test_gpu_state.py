"""States of GPUs: idle only if nothing that decides it is unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuctl.nodes import facts_file
from gpuctl.nodes.model import Gpu, Node, State
from gpuctl.nodes.node_use import node, unasked
from tests.rig.gpu_user_facts import UID, facts, job, pod_devices, process, uuid
from tests.rig.recordings import recording

Change = Callable[[dict[str, Any]], object]


def first(made: dict[str, Any]) -> Gpu:
    return node("gpu-1", made).gpus[0]


def changed(change: Change) -> dict[str, Any]:
    made = facts()
    change(made)
    return made


def test_a_gpu_is_idle_if_all_is_known() -> None:
    one = node("gpu-1", facts())
    assert {gpu.state for gpu in one.gpus} == {State.IDLE}
    assert (one.total, one.type, one.count(State.IDLE), one.count(State.UNKNOWN)) == (8, "p5.48xlarge", 8, 0)


UNKNOWN: dict[str, tuple[Change, str]] = {
    "no list of processes": (lambda m: m["gpus"][0].update(processes=None), "lists no processes"),
    "an error": (lambda m: m["gpus"][0].update(errors={"temperature/gpu_temp": "[Unknown Error]"}), "Unknown Error"),
    "a lost GPU": (lambda m: m["gpus"][0].update(errors={"x": "GPU is lost"}), '"GPU is lost"'),
    "no memory": (lambda m: m["gpus"][0].update(used_mib=None, unread={"used_mib": "[N/A]"}), "[N/A]"),
    "a container": (lambda m: m.update(pid_namespace="nested"), "hidden by its pid namespace"),
    "an unknown namespace": (lambda m: m.update(pid_namespace=None), "/proc/self/ns/pid"),
    "hidepid": (lambda m: m.update(sees_all=False), "hidepid"),
    "the kubelet's list": (
        lambda m: m.update(pod_devices=None, unread={"pod_devices": "Permission denied"}),
        "Permission denied",
    ),
    "a MIG device of an unknown GPU": (lambda m: m.update(pod_devices=pod_devices("MIG-1-2")), "MIG-1-2"),
    "a job whose GPUs are not known": (lambda m: m.update(slurm_jobs=[job("9", known=False)]), "job 9"),
    "Slurm's control groups": (lambda m: m.update(slurm_jobs=None), "jobs have is not known"),
}


@pytest.mark.parametrize(("change", "reason"), UNKNOWN.values(), ids=list(UNKNOWN))
def test_what_is_unknown_is_never_idle(change: Change, reason: str) -> None:
    gpu = first(changed(change))
    assert gpu.state is State.UNKNOWN
    assert reason in gpu.why


@pytest.mark.parametrize("change", [change for change, _ in UNKNOWN.values()], ids=list(UNKNOWN))
def test_a_process_is_use_whatever_else_is_unknown(change: Change) -> None:
    made = facts(process(7), on={0: [7]})
    rows = made["gpus"][0]["processes"]
    change(made)
    made["gpus"][0]["processes"] = rows
    assert first(made).state is State.USED


def test_memory_without_a_process_is_held_and_hidden_processes_make_it_unknown() -> None:
    made = changed(lambda m: m["gpus"][0].update(used_mib=40_000))
    assert (first(made).state, first(made).why) == (State.MEMORY_IN_USE, "40000 MiB are in use, and no process on it")
    hidden = first({**made, "pid_namespace": "nested"})
    assert hidden.state is State.UNKNOWN
    assert "40000 MiB are in use" in hidden.why


@pytest.mark.parametrize(("used", "state"), [(256, State.IDLE), (257, State.MEMORY_IN_USE)])
def test_what_the_driver_itself_uses_is_nobodys(used: int, state: State) -> None:
    assert first(changed(lambda m: m["gpus"][0].update(used_mib=used))).state is state


def test_a_display_is_no_work_and_its_memory_is_not_nobodys() -> None:
    row = {"pid": 5, "name": "/usr/lib/xorg/Xorg", "used_mib": 600, "type": "G", "gi": None, "ci": None}
    made = changed(lambda m: m["gpus"][0].update(used_mib=600, displays=[row]))
    assert first(made).state is State.IDLE


@pytest.mark.parametrize(
    ("more", "holder"),
    [
        ({"pod_devices": pod_devices(uuid(0))}, "team-a/trainer-0"),
        ({"pod_devices": pod_devices(f"{uuid(0)}::2")}, "team-a/trainer-0"),
        ({"pod_devices": pod_devices("0")}, "team-a/trainer-0"),
        ({"slurm_jobs": [job("9", 0, 1)]}, "job 9"),
    ],
)
def test_a_gpu_that_was_given_away_is_not_free(more: dict[str, Any], holder: str) -> None:
    gpu = first(facts(**more))
    assert (gpu.state, gpu.why) == (State.RESERVED, f"{holder} has it, and no process on it")


def test_slurm_counts_by_minor_numbers() -> None:
    made = facts(slurm_jobs=[job("9", 7)])
    for index, gpu in enumerate(made["gpus"]):
        gpu["minor"] = 7 - index
    assert [gpu.index for gpu in node("gpu-1", made).gpus if gpu.state is State.RESERVED] == [0]


def test_a_gpu_that_the_driver_has_lost_counts_as_unknown() -> None:
    made = facts()
    made["gpus"].pop()
    one = node("gpu-1", made)
    assert (one.total, one.count(State.IDLE), one.count(State.UNKNOWN)) == (8, 7, 1)


@pytest.mark.parametrize(
    ("more", "total", "why"),
    [
        ({"unread": {"gpus": "nvidia-smi: not on this host"}}, 0, ""),
        ({"unread": {"gpus": "nvidia-smi: not on this host"}, "on_bus": 8}, 8, "nvidia-smi: not on this host"),
        ({"unread": {"gpus": "nvidia-smi: not on this host"}, "on_bus": None}, None, "nvidia-smi: not on this host"),
        ({"unread": {"gpus": "nvidia-smi gave no answer within 60 s"}}, None, "nvidia-smi gave no answer within 60 s"),
    ],
)
def test_a_node_whose_nvidia_smi_failed_is_unknown_unless_it_has_no_gpu(
    more: dict[str, Any], total: int | None, why: str
) -> None:
    one = node("gpu-1", facts(**{"gpus": None, "attached": None, "on_bus": 0, **more}))
    assert (one.total, one.why) == (total, why)
    assert one.count(State.IDLE) == 0


def test_a_node_that_could_not_be_read_or_reached_is_unknown() -> None:
    assert node("gpu-1", {"unread": {"*": "not understood"}}).why == "not understood"
    assert (unasked("gpu-2", "it cannot be reached").total, unasked("gpu-2", "x").reached) == (None, False)


def mig(**more: Any) -> Node:
    path = recording("nvidia-smi/x_a100_pcie_8g_mig_mixed_535.xml")
    recorded = dict(facts_file.read(path).nodes["x_a100_pcie_8g_mig_mixed_535"])
    changes = {"pid_namespace": "initial", "sees_all": True, "pod_devices": [], "slurm_jobs": [], "unread": {}}
    return node("gpu-1", {**recorded, **changes, **more})


def test_instances_of_mig_have_states_of_their_own() -> None:
    """Read by hand: gpu_burn is on GPU 0, and on instance 5 of GPU 2, which has instances 1, 5 and 13."""
    one = mig()
    assert [gpu.index for gpu in one.gpus if gpu.state is State.USED] == [0, 2]
    assert [(i.gi, i.ci, i.state) for i in one.gpus[2].instances] == [
        (1, 0, State.IDLE),
        (5, 0, State.USED),
        (13, 0, State.IDLE),
    ]
    assert one.gpus[2].busy_percent is None


def test_a_pod_has_an_instance_by_the_ids_of_old_drivers() -> None:
    whole = mig().gpus[2]
    one = mig(pod_devices=pod_devices(f"MIG-{whole.uuid}/13/0"), pods={UID: {"namespace": "a", "name": "b"}})
    assert [(i.gi, i.state) for i in one.gpus[2].instances][2] == (13, State.RESERVED)


# Read by hand from the recordings: GPUs, processes that compute, and GPUs on which they are.
RECORDED = {
    "x_a100-sxm4-mig.xml": (1, 0, []),
    "x_a100_pcie_8g_mig_mixed_535.xml": (8, 1, [0, 2]),
    "x_h100_8g_driver570.xml": (8, 0, []),
    "x_rtx-2080-win.xml": (1, 26, [0]),
    "x_rtx-3060.xml": (1, 0, []),
    "x_rtx-4090-driver-535.xml": (1, 0, []),
    "x_rtx-pro-6000-driver-580.xml": (1, 0, []),
    "x_tesla-p100.xml": (1, 0, []),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_outputs_alone_prove_use_and_never_idleness(name: str) -> None:
    path: Path = recording(f"nvidia-smi/{name}")
    one = node("gpu-1", facts_file.read(path).nodes[path.stem])
    work = [process for user in one.users for process in user.processes if not process.daemon]
    used = [gpu.index for gpu in one.gpus if gpu.state is State.USED]
    assert (one.total, len(work), used) == RECORDED[name]
    assert {gpu.state for gpu in one.gpus} <= {State.USED, State.UNKNOWN}
