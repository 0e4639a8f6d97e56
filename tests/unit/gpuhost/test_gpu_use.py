"""Users of GPUs as a host reads them: from files below a root, with a stand-in that prints nvidia-smi's XML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import (
    busy,
    gpu_allocations,
    gpu_use,
    process_details,
)
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from tests.rig import gpu_user_trees as trees
from tests.rig.h100_node import DATA, program, put

A = "0123456789abcdef" * 4
UID = "4a163a05-439d-484b-8e53-2968bc15824f"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.build(tmp_path)


def read(root: Path) -> dict[str, Any]:
    return gpu_use.read(Host(root), {})


def test_each_process_has_its_command_user_start_state_and_control_groups(root: Path) -> None:
    trees.process(root, 4711, name="pt) main (x", command="python\0train.py\0--lr\x001e-4\0", ticks=360_000, uid=1000)
    trees.on_gpus(root, {0: [4711]})
    facts = read(root)
    assert facts["unread"] == {}
    assert facts["processes"] == {
        "4711": {
            "pid": 4711,
            "name": "pt) main (x",
            "command": "python train.py --lr 1e-4",
            "state": "S",
            "blocked_in": None,
            "since": trees.BOOT + 3600,
            "start_ticks": 360_000,
            "uid": 1000,
            "login_uid": 1000,
            "cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
            "mounts": "",
            "slurm": {},
        }
    }
    assert facts["users"] == {"1000": "alice"}
    assert facts["sessions"] == {"3": {"user": "alice", "service": "sshd", "remote": "10.0.0.5", "tty": "pts/0"}}
    assert facts["gpus"][0]["processes"] == [
        {"pid": 4711, "name": "python", "used_mib": 900, "type": "C", "gi": None, "ci": None}
    ]


def test_a_process_that_has_ended_or_is_hidden_has_no_details(root: Path) -> None:
    trees.on_gpus(root, {0: [99]})
    facts = read(root)
    assert (facts["processes"], facts["gpus"][0]["processes"][0]["pid"]) == ({}, 99)


def test_the_command_line_of_a_blocked_process_is_not_touched(root: Path) -> None:
    """Its address space is locked: reading it would hang this program, too."""

    class Watching(Host):
        paths: list[str]

        def read(self, path: str) -> str:
            self.paths.append(path)
            return super().read(path)

    trees.process(root, 7, state="D", cgroup="0::/system.slice/slurmstepd.scope/job_1/step_0/user/task_0\n")
    put(root, "/proc/7/wchan", "uvm_push_wait")
    host = Watching(root)
    host.paths = []
    one = process_details.read(host, 7, trees.BOOT)
    assert one is not None
    assert (one["state"], one["blocked_in"], one["command"]) == ("D", "uvm_push_wait", None)
    assert not {path for path in host.paths if path.endswith(("cmdline", "environ"))}


def test_a_process_that_waits_for_a_disk_for_a_moment_is_not_blocked(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.process(root, 7, state="D")
    trees.on_gpus(root, {0: [7]})
    monkeypatch.setattr("time.sleep", lambda _: trees.process(root, 7, state="S"))
    assert read(root)["processes"]["7"]["state"] == "S"


def test_a_long_command_is_cut_between_two_arguments(root: Path) -> None:
    words = [f"--option-{number}=value" for number in range(400)]
    trees.process(root, 7, command="\0".join(words) + "\0")
    one = process_details.read(Host(root), 7, trees.BOOT)
    assert one is not None
    *whole, mark = one["command"].split(" ")
    assert (mark, whole) == ("…", words[: len(whole)])
    assert len(one["command"]) <= process_details.LONGEST + 2


def test_only_variables_of_slurm_leave_the_host(root: Path) -> None:
    trees.process(root, 7, cgroup="0::/system.slice/slurmstepd.scope/job_9/step_batch/user/task_0\n")
    put(root, "/proc/7/environ", "AWS_SECRET_ACCESS_KEY=x\0SLURM_JOB_ID=9\0SLURM_JOB_GPUS=0,2\0TOKEN=y\0")
    one = process_details.read(Host(root), 7, trees.BOOT)
    assert one is not None
    assert one["slurm"] == {"SLURM_JOB_ID": "9", "SLURM_JOB_GPUS": "0,2"}


def test_pods_and_containers_have_their_names_from_the_hosts_own_files(root: Path) -> None:
    slice_ = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    trees.process(root, 7, cgroup=f"0::/kubepods.slice/kubepods-burstable.slice/{slice_}/cri-containerd-{A}.scope\n")
    trees.process(root, 8, cgroup=f"0::/system.slice/docker-{A[::-1]}.scope\n")
    trees.on_gpus(root, {0: [7], 1: [8]})
    put(root, f"/var/log/pods/team-a_trainer-0_{UID}/main/0.log", "")
    put(root, "/var/log/pods/other_pod_00000000-0000-0000-0000-000000000000/main/0.log", "")
    put(root, f"/var/log/containers/trainer-0_team-a_main-{A}.log", "")
    config = {"Name": "/bench", "Config": {"Image": "nvcr.io/nvidia/pytorch:25.08-py3", "Env": ["TOKEN=secret"]}}
    put(root, f"/var/lib/docker/containers/{A[::-1]}/config.v2.json", json.dumps(config))
    facts = read(root)
    assert facts["pods"] == {UID: {"namespace": "team-a", "name": "trainer-0"}}
    assert facts["containers"] == {
        A: {"name": "main", "image": None},
        A[::-1]: {"name": "bench", "image": "nvcr.io/nvidia/pytorch:25.08-py3"},
    }
    assert "secret" not in json.dumps(facts)


def test_podman_names_its_containers(root: Path) -> None:
    trees.process(root, 7, cgroup=f"0::/machine.slice/libpod-{A}.scope/container\n")
    trees.on_gpus(root, {0: [7]})
    rows = [{"id": A, "names": ["lab"]}, {"id": "other", "names": ["x"]}]
    put(root, "/var/lib/containers/storage/overlay-containers/containers.json", json.dumps(rows))
    assert read(root)["containers"] == {A: {"name": "lab", "image": None}}


@pytest.mark.parametrize("devices", [["GPU-1", "GPU-2::3"], {"-1": ["GPU-1"], "0": ["GPU-2::3"]}])
def test_the_kubelets_list_has_the_devices_of_living_pods(root: Path, devices: object) -> None:
    entries = [
        {"PodUID": uid, "ContainerName": "main", "ResourceName": "nvidia.com/gpu", "DeviceIDs": devices}
        for uid in (UID, "gone")
    ]
    put(root, busy.KUBELET, json.dumps({"Data": {"PodDeviceEntries": entries}}))
    put(root, f"/sys/fs/cgroup/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cgroup.procs", "1\n")
    unread: dict[str, str] = {}
    assert gpu_allocations.kubernetes(Host(root), unread) == [
        {"pod": UID, "container": "main", "resource": "nvidia.com/gpu", "devices": ["GPU-1", "GPU-2::3"]}
    ]
    assert unread == {}


V2 = "/sys/fs/cgroup/system.slice/slurmstepd.scope"
SLUID = "s5K1KKYAYG5D00"
V1 = "/sys/fs/cgroup/devices/slurm/uid_1000"


@pytest.mark.parametrize(
    ("folder", "environment", "expected"),
    [
        (f"{V2}/job_9/step_batch/user/task_0", "SLURM_JOB_ID=9\0SLURM_JOB_GPUS=0,2-3\0", ("9", None, "9", [0, 2, 3])),
        (f"{V2}/job_9/step_0/user/task_0", "SLURM_JOB_ID=9\0SLURM_STEP_GPUS=1\0", ("9", None, "9", [1])),
        (f"{V2}/job_9/step_batch/user/task_0", "SLURM_JOB_ID=9\0", ("9", None, "9", [])),
        (f"{V2}/job_9/step_extern/user/task_x", "SLURM_JOB_ID=9\0", ("9", None, "9", None)),
        (f"{V2}/job_9/step_0/user/task_0", "", ("9", None, None, None)),
        (f"{V2}/{SLUID}/step_0/user/task_0", "SLURM_JOB_ID=9\0SLURM_STEP_GPUS=1\0", (None, SLUID, "9", [1])),
        (f"{V1}/job_9/step_0/task_0", "SLURM_STEP_GPUS=4\0", ("9", None, None, [4])),
    ],
)  # fmt: skip
def test_jobs_tell_which_gpus_slurm_gave_them(root: Path, folder: str, environment: str, expected: object) -> None:
    put(root, f"{folder}/cgroup.procs", "70\n")
    put(root, "/proc/70/environ", environment)
    [job] = gpu_allocations.slurm(Host(root), {}) or []
    assert (job["job"], job["sluid"], job["number"], job["gpus"]) == expected


def test_slurmd_tells_the_jobs_of_sluids(root: Path) -> None:
    listed = "PID JOBID STEPID LOCALID GLOBALID\\n7 4711 0 0 0\\n8 4711 extern - -\\n"
    program(root, "scontrol", f'test "$1" = listpids || exit 1; printf "{listed}"')
    trees.process(root, 7, cgroup=f"0::/system.slice/slurmstepd.scope/{SLUID}/step_0/user/task_0\n")
    trees.on_gpus(root, {0: [7]})
    assert read(root)["slurm_pids"] == {"7": ["4711", "0"], "8": ["4711", "extern"]}


def test_holders_of_a_device_are_looked_for_only_if_memory_has_no_process(root: Path) -> None:
    assert read(root)["open_by"] == {}
    trees.used_mib(root, 40_000)
    trees.process(root, 66, name="python")
    (root / "proc/66/fd").mkdir()
    (root / "proc/66/fd/3").symlink_to("/dev/nvidia0")
    (root / "proc/66/fd/4").symlink_to("/dev/nvidiactl")
    facts = read(root)
    assert facts["open_by"] == {"66": [0]}
    assert facts["processes"]["66"]["name"] == "python"


@pytest.mark.parametrize(("inode", "expected"), [("4026531836", "initial"), ("4026532222", "nested"), ("", None)])
def test_a_container_is_told_by_its_pid_namespace(root: Path, inode: str, expected: str | None) -> None:
    link = root / "proc/self/ns/pid"
    link.unlink()
    if inode:
        link.symlink_to(f"pid:[{inode}]")
    assert read(root)["pid_namespace"] == expected


def test_hidden_processes_are_told(root: Path) -> None:
    (root / "proc/1/comm").unlink()
    assert read(root)["sees_all"] is False


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("echo 'No devices were found'; exit 6", "No devices were found"),
        ("echo 'Unable to determine the device handle for GPU0000:53:00.0: GPU is lost.'; exit 15", "GPU is lost."),
        (f"/usr/bin/head -c 20000 {DATA / 'nvidia-smi/570-h100-8gpu.xml'}", "printed no whole XML"),
    ],
)
def test_an_answer_of_nvidia_smi_that_is_none_leaves_all_unread(root: Path, does: str, reason: str) -> None:
    program(root, "nvidia-smi", does)
    facts = read(root)
    assert facts["gpus"] is None
    assert reason in facts["unread"]["gpus"]


@pytest.mark.parametrize(("driver", "limit"), [("570.86.15", 256), ("470.1", 1024), (None, 1024), ("x", 1024)])
def test_memory_that_old_drivers_reserve_is_nobodys(driver: str | None, limit: int) -> None:
    assert gpu_use.unused_limit(driver) == limit
