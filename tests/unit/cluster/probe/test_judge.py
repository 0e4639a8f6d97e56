"""What stands against a training, from what pods answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.environment import Environment, EnvironmentRequest, environment
from gpuctl.cluster.probe import judge
from gpuctl.cluster.probe.flow import PortCheck
from gpuctl.cluster.probe.model import Facts
from gpuctl.cluster.selftest import judge as testing
from gpuctl.domain import gpu_health
from gpuctl.domain.findings import Verdict, group_by_subject
from tests.rig.cluster.files import ROCE, cluster
from tests.rig.cluster.probe_answers import facts, gpus
from tests.rig.recordings import recording

MIG = Path("tests/data/nvidia-smi/L-a100-mig.txt")
LOST = Path("tests/data/nvidia-smi/device-lost.txt")
H100 = Path("tests/data/nvidia-smi/570-h100-8gpu.xml")
ROOT = Path(__file__).parents[4]


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return environment(cluster(tmp_path), EnvironmentRequest(nodes=2))


def words(found: list[Any]) -> list[str]:
    return [f"{each.verdict} {each.subject}: {each.message}" for each in found]


def pod(ready: bool = True, **meta: Any) -> dict[str, Any]:
    status = "True" if ready else "False"
    return {"metadata": meta, "status": {"conditions": [{"type": "Ready", "status": status}]}}


def test_where_all_is_well_nothing_is_said(env: Environment) -> None:
    both = [facts(env, 0), facts(env, 1)]
    assert judge.pods(env, 2, {"lab-0": pod(), "lab-1": pod()}) == []
    assert judge.hostfile(env, 2, both, needed=True) == []
    assert judge.names(both) + judge.ssh(both, {"lab-0": [env.host(1)]}) + judge.trainings(both) == []
    assert judge.gpus(env, both, 8, exactly=True) + judge.port(env, both, PortCheck("")) == []
    assert testing.shared_memory(env, both) + testing.rdma(env, both) + testing.drivers(both) == []


def test_each_pod_that_is_not_ready_is_named_with_the_reason(env: Environment) -> None:
    found = judge.pods(env, 3, {"lab-0": pod(ready=False), "lab-1": pod(deletionTimestamp="now")})
    assert words(found) == [
        "FAIL lab-2: the pod does not exist",
        "FAIL lab-1: it is terminating",
        "FAIL lab-0: it is not ready",
    ]


def test_a_hostfile_of_another_size_is_reported_with_the_names(env: Environment) -> None:
    old = facts(env, 1, hostfile={"text": f"{env.host(0)} slots=4\nlab-9.lab.team.svc slots=8\n"})
    [found] = judge.hostfile(env, 2, [facts(env, 0), old], needed=True)
    assert found.subject == "lab-1"
    assert found.message.split("; ") == [
        "/job/hostfile: it does not name lab-1.lab.team.svc",
        "it names lab-9.lab.team.svc, but no such pod exists",
        "it gives lab-0.lab.team.svc 4 slots, not 8",
    ]
    assert judge.hostfile(env, 2, [old], needed=False)[0].verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ({"why": "No such file or directory"}, "/job/hostfile: No such file or directory"),
        ({"text": "lab-0\n"}, "/job/hostfile has a line that no launcher reads: lab-0"),
    ],
)
def test_a_hostfile_that_cannot_be_used_says_why(env: Environment, told: dict[str, str], wrong: str) -> None:
    assert judge.hostfile(env, 2, [facts(env, 0, hostfile=told)], needed=True)[0].message == wrong


def test_names_without_an_address_are_reported_of_each_pod(env: Environment) -> None:
    told = {env.host(0): ["10.0.0.1"], env.host(1): "late"}
    found = judge.names([facts(env, 0, names=told), facts(env, 1)])
    assert words(found) == ["FAIL lab-0: no address for lab-1.lab.team.svc: no answer"]


def test_a_port_that_is_taken_cannot_be_tried_or_cannot_be_reached_are_three_things(env: Environment) -> None:
    both = [facts(env, 0), facts(env, 1, reached="late")]
    assert words(judge.port(env, both, PortCheck("busy"))) == ["FAIL lab-0: another program listens on port 29500"]
    assert judge.port(env, both, PortCheck("Permission denied"))[0].verdict is Verdict.UNKNOWN
    assert words(judge.port(env, both, PortCheck(""))) == [
        "FAIL lab-1: cannot reach lab-0.lab.team.svc:29500: no answer"
    ]
    nameless = facts(env, 1, reached="late", names={env.host(0): "late"})
    assert judge.port(env, [nameless], PortCheck("")) == []


@pytest.mark.parametrize(
    ("said", "verdict", "wrong"),
    [
        (gpus(0, "GPU 0: NVIDIA H100 (UUID: GPU-1)\n"), Verdict.FAIL, "1 GPUs are visible, not 8"),
        (gpus(9, (ROOT / LOST).read_text()), Verdict.FAIL, "nvidia-smi: Unable to determine the device handle for GPU"),
        (gpus(None, "", "late"), Verdict.FAIL, "nvidia-smi: it does not answer"),
        (gpus(None, "", "none"), Verdict.UNKNOWN, "the image has no nvidia-smi"),
    ],
)
def test_gpus_are_counted_and_what_nobody_can_say_is_unknown(
    env: Environment, said: dict[str, Any], verdict: Verdict, wrong: str
) -> None:
    [found] = judge.gpus(env, [facts(env, 0, **said)], 8, exactly=True)
    assert (found.verdict, found.message[: len(wrong)]) == (verdict, wrong)


@pytest.mark.parametrize("recorded", [False, True], ids=["ours", "recorded"])
def test_parts_of_gpus_are_counted_where_the_pod_asks_for_parts(tmp_path: Path, recorded: bool) -> None:
    def told(resource: str, per_node: int, **said: Any) -> list[str]:
        env = environment(
            cluster(tmp_path, {"gpus": {"resource": resource, "per_node": per_node}}), EnvironmentRequest(nodes=2)
        )
        return words(judge.gpus(env, [facts(env, 0, **said)], per_node, exactly=True))

    path = recording("nvidia-smi/L_a100_mig_mixed.txt") if recorded else ROOT / MIG
    listed = gpus(0, path.read_text())
    assert told("nvidia.com/mig-1g.10gb", 8, **listed) == []
    assert told("nvidia.com/mig-1g.10gb", 7, **listed) == ["FAIL lab-0: 8 MIG devices are visible, not 7"]
    assert told("nvidia.com/gpu", 2, **listed) == []
    [line] = told("nvidia.com/mig-1g.10gb", 8, **gpus(None, "", "none"))
    assert line.startswith("UNKNOWN lab-0: the image has no nvidia-smi, without which MIG devices cannot be counted")
    [line] = told("nvidia.com/gpu.shared", 2, **listed)
    assert line == "UNKNOWN lab-0: gpuctl does not know how many GPUs one nvidia.com/gpu.shared makes visible"


def test_without_nvidia_smi_the_devices_of_the_container_are_counted(env: Environment) -> None:
    devices = {"gpus": ["nvidia0", "nvidia1"], "infiniband": [], "verbs": []}
    found = facts(env, 0, **gpus(None, "", "none"), devices=devices)
    assert found.gpus == 2


def test_who_trains_there_is_named(env: Environment) -> None:
    run = {"run": "r", "actor": "ann@desk", "about": "train.py", "began": 1767225600.0}
    other = {"pid": 7, "command": "python3 old.py", "token": ""}
    found = judge.trainings([facts(env, 0, trainings=[other, run]), facts(env, 1, trainings=[other, other])])
    assert ["--stop" in each.hint for each in found] == [True, False]
    [by_ssh] = judge.trainings([facts(env, 1, trainings=[{**other, "token": "t"}])])
    assert "--stop" in by_ssh.hint
    assert words(found) == [
        "FAIL lab-0: train.py of ann@desk has been training there since 2026-01-01 00:00 UTC",
        "FAIL lab-1: python3 old.py (process 7) is training there and 1 more",
    ]


def test_secrets_in_the_command_line_of_who_trains_there_are_not_told(env: Environment) -> None:
    given = "torchrun t.py --api_key=hunter2 " + "x" * 160 + " --hub hf_abcdefghijklmnopqrstuvwxyz"
    [found] = judge.trainings([facts(env, 0, trainings=[{"pid": 7, "command": given, "token": ""}])])
    assert found.message.startswith("torchrun t.py --api_key=<removed> xxx")
    assert "hf_" not in found.message
    assert found.message.endswith(" (process 7) is training there")


def test_a_pod_that_cannot_be_asked_fails_and_is_judged_no_further(env: Environment) -> None:
    away = Facts("lab-1", unread="its image has no python3 that can be run", hint="try another")
    assert words(judge.unread([facts(env, 0), away])) == [
        "FAIL lab-1: cannot be probed: its image has no python3 that can be run"
    ]
    assert judge.gpus(env, [away], 8, exactly=True) + judge.names([away]) == []


def test_the_same_of_many_pods_is_said_once(env: Environment) -> None:
    found = judge.together("gpus", Verdict.FAIL, {f"lab-{number}": "none" for number in range(9)})
    assert len(found) == 9
    [one] = group_by_subject(found)
    assert one.subject == "lab-0, lab-1, lab-2, lab-3, lab-4, lab-5 and 3 more"


@pytest.mark.parametrize("recorded", [False, True], ids=["ours", "recorded"])
def test_gpus_that_are_well_are_well_and_bad_memory_is_named(env: Environment, recorded: bool) -> None:
    text = (recording("nvidia-smi/x_h100_8g_driver570.xml") if recorded else ROOT / H100).read_text()
    well = facts(env, 0, answers={"gpus": {"code": 0, "text": ""}, "details": {"code": 0, "text": text}})
    assert well.details
    assert len(well.details["gpus"]) == 8
    assert testing.health([well]) == []
    ill = text.replace("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", 1)
    [found] = testing.health([facts(env, 0, answers={"gpus": {}, "details": {"code": 0, "text": ill}})])
    assert found.verdict is Verdict.FAIL
    assert found.message.startswith("GPU 0 (GPU-")
    assert found.message.endswith("a row remap is pending")
    assert found.hint == gpu_health.RESET


@pytest.mark.parametrize(
    ("word", "verdict"), [("[GPU requires reset]", Verdict.FAIL), ("ERR!", Verdict.FAIL), ("[N/A]", Verdict.UNKNOWN)]
)
def test_a_gpu_that_could_not_say_how_its_memory_is_is_not_well(env: Environment, word: str, verdict: Verdict) -> None:
    sick = (ROOT / H100).read_text().replace("<remapped_row_pending>No<", f"<remapped_row_pending>{word}<", 1)
    [found] = testing.health([facts(env, 0, answers={"gpus": {}, "details": {"code": 0, "text": sick}})])
    assert found.verdict is verdict


def test_a_gpu_is_as_ill_for_a_test_as_for_the_doctor(env: Environment) -> None:
    text = (ROOT / H100).read_text()
    errors = text.replace("<sram_uncorrectable_parity>0<", "<sram_uncorrectable_parity>3<", 1)
    ecc = text.replace("<pending_ecc>Enabled<", "<pending_ecc>Disabled<", 1)
    assert text not in (errors, ecc)
    [ill] = testing.health([facts(env, 0, answers={"gpus": {}, "details": {"code": 0, "text": errors}})])
    assert ill.verdict is Verdict.FAIL
    assert ill.message.endswith(": 3 uncorrectable errors since the driver was loaded")
    [reset] = testing.health([facts(env, 0, answers={"gpus": {}, "details": {"code": 0, "text": ecc}})])
    assert reset.verdict is Verdict.FAIL
    assert reset.message.endswith(": ECC is Enabled, Disabled after a reset")


def test_another_driver_on_one_node_is_reported(env: Environment) -> None:
    text = (ROOT / H100).read_text()
    version = facts(env, 0, answers={"details": {"code": 0, "text": text}}).details
    assert version
    other = text.replace(version["driver"], "535.1", 1)
    made = [facts(env, n, answers={"details": {"code": 0, "text": each}}) for n, each in enumerate((text, other))]
    found = testing.drivers([made[0], Facts("lab-2", made[0].answer), made[1]])
    assert words(found) == [f"WARN lab-1: driver 535.1, where most have {version['driver']}"]


def test_shared_memory_that_is_too_small_is_reported_with_both_sizes(env: Environment) -> None:
    found = testing.shared_memory(env, [facts(env, 0, shm={"bytes": 64 << 20, "free": 0})])
    assert words(found) == ["FAIL lab-0: shared memory is 64.0 MiB, the file says 32Gi"]


def test_a_workspace_that_the_user_may_not_write_to_is_reported_with_the_user(env: Environment) -> None:
    theirs, gone = {"user": 1000, "writable": False}, {"why": "it is not there"}
    found = testing.workspace([facts(env, 0), facts(env, 1, workspace=theirs), facts(env, 2, workspace=gone)])
    assert words(found) == [
        "FAIL lab-1: /workspace is not writable for the pod's user, 1000",
        "FAIL lab-2: /workspace: it is not there",
    ]


def test_rdma_needs_adapters_their_files_and_memory_to_lock(tmp_path: Path) -> None:
    env = environment(cluster(tmp_path, {"network": {"rdma": ROCE}}), EnvironmentRequest("rdma", 2))
    none: dict[str, Any] = {"gpus": [], "infiniband": None, "verbs": []}
    no_files = {"gpus": [], "infiniband": ["mlx5_0"], "verbs": []}
    lock = {"bytes": 64 << 10, "capabilities": "0"}
    found = testing.rdma(env, [facts(env, 0, devices=none), facts(env, 1, devices=no_files, memlock=lock)])
    assert words(found) == [
        "FAIL lab-0: the container sees no RDMA adapter (/sys/class/infiniband)",
        "FAIL lab-1: the container has no /dev/infiniband/uverbs*: its device plugin gave it none",
        "WARN lab-1: its user may lock 64.0 KiB: RDMA fails beyond that",
    ]


def adapters(folder: Path, devices: list[str], *there: list[str]) -> list[str]:
    """What is said of pods that have these adapters where the cluster file names those devices."""
    env = environment(
        cluster(folder, {"network": {"rdma": {**ROCE, "devices": devices}}}), EnvironmentRequest("rdma", 2)
    )
    given = [{"gpus": [], "infiniband": each, "verbs": ["uverbs0"]} for each in there]
    return words(testing.rdma(env, [facts(env, rank, devices=each) for rank, each in enumerate(given)]))


def test_adapters_that_are_named_with_a_port_are_found_by_their_device(tmp_path: Path) -> None:
    assert adapters(tmp_path, ["mlx5_0:1", "mlx5_1:1"], ["mlx5_0", "mlx5_1"]) == []
    assert adapters(tmp_path, ["mlx5_2:1"], ["mlx5_0"]) == ["FAIL lab-0: no adapter mlx5_2:1; it has mlx5_0"]


def test_a_list_of_adapters_may_name_those_of_other_kinds_of_nodes(tmp_path: Path) -> None:
    wanted = ["mlx5_0", "mlx5_9"]
    assert adapters(tmp_path, wanted, ["mlx5_0"], ["mlx5_0"]) == [
        "WARN lab-0: no adapter mlx5_9; it has mlx5_0",
        "WARN lab-1: no adapter mlx5_9; it has mlx5_0",
    ]
    one = adapters(tmp_path, wanted, ["mlx5_0"], ["mlx5_0", "mlx5_9"])
    assert one == ["FAIL lab-0: no adapter mlx5_9; it has mlx5_0"]
