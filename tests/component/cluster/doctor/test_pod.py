"""What is read inside a pod: from a folder that looks like one, and by the program itself on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.cluster.doctor.pod import disk, gpus, jobs, machine, nccl_logs, network, variables
from tests.rig.cluster.environments import DATA, H100

AT_ONCE: Mapping[str, Any] = {"sample_s": 0.0, "limit_s": 20.0}
LIMITS = (
    "Limit Soft Limit Hard Limit Units\nMax locked memory         8388608              8388608              bytes\n"
)


def write(root: Path, files: Mapping[str, str]) -> Host:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Host(root)


def process(pid: int, name: str, environ: Mapping[str, str], state: str = "S", began: int = 100) -> dict[str, str]:
    """A process as /proc has it, with one thread; its name may hold anything."""
    rest = ["0"] * 49
    rest[10:12], rest[16], rest[18] = ["700", "300"], "12", str(began)
    stat = f"{pid} ({name}) {state} 1 {' '.join(rest[1:])}\n"
    values = "\0".join(f"{key}={value}" for key, value in environ.items()) + "\0"
    return {
        f"proc/{pid}/stat": stat,
        f"proc/{pid}/task/{pid}/stat": stat,
        f"proc/{pid}/comm": f"{name}\n",
        f"proc/{pid}/environ": values,
        f"proc/{pid}/wchan": "futex_wait",
        f"proc/{pid}/limits": LIMITS,
    }


def test_a_rank_is_the_eldest_of_its_number_that_is_no_shell(tmp_path: Path) -> None:
    values = {"RANK": "3", "WORLD_SIZE": "8", "NCCL_DEBUG": "INFO", "HF_TOKEN": "hunter2"}
    host = write(
        tmp_path,
        {
            "proc/uptime": "1000.00 1.0\n",
            **process(1, "sleep", {}),
            **process(10, "bash", values, began=200),
            **process(11, "python3 (x) y", values, "R", began=300),
            **process(12, "pt_data_worker", values, began=400),
        },
    )
    found = jobs.read(host, AT_ONCE)
    (rank,) = found["ranks"]
    assert (rank["rank"], rank["pid"], rank["name"], rank["state"]) == (3, 11, "python3 (x) y", "R")
    assert (rank["world"], rank["helpers"], rank["memlock"], rank["wait"]) == (8, 2, "8388608", "futex_wait")
    assert rank["still"] is True
    assert rank["age_s"] == 1000 - 300 // jobs.TICKS
    assert rank["variables"] == {"RANK": "3", "WORLD_SIZE": "8", "NCCL_DEBUG": "INFO"}
    assert found["age_s"] == 1000 - 100 // jobs.TICKS


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"])
def test_ranks_of_other_launchers_are_known(tmp_path: Path, name: str) -> None:
    host = write(tmp_path, process(10, "all_reduce_perf", {name: "0"}))
    assert [each["rank"] for each in jobs.read(host, AT_ONCE)["ranks"]] == [0]


def test_the_last_lines_of_nccl_are_taken_from_the_files_that_ranks_write_to(tmp_path: Path) -> None:
    log = (DATA / "nccl/torch_ib_error12.log").read_text()
    host = write(
        tmp_path,
        {**process(10, "python3", {"RANK": "0", "NCCL_DEBUG_FILE": "/logs/%h.%p"}), "logs/a.10": "secret=1\n" + log},
    )
    (file,) = nccl_logs.read(host, AT_ONCE)["files"]
    (line,) = file["lines"]
    assert file["live"] is True
    assert "NCCL WARN NET/IB : Got completion from peer" in line


def test_a_start_that_tells_of_thousands_of_channels_takes_no_warning_away(tmp_path: Path) -> None:
    channels = "lab-0:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/Libfabric/0/GDRDMA\n" * 500
    log = "lab-0:1:2 [0] NCCL WARN Call to ibv_create_qp failed\n" + channels
    host = write(tmp_path, {**process(10, "python3", {"RANK": "0", "NCCL_DEBUG_FILE": "/logs/a"}), "logs/a": log})
    (file,) = nccl_logs.read(host, AT_ONCE)["files"]
    assert len(file["lines"]) == nccl_logs.NETWORK + 1
    assert "ibv_create_qp" in file["lines"][-1]


def test_the_newest_training_that_gpuctl_keeps_is_read_and_older_ones_are_not(tmp_path: Path) -> None:
    line = "lab-0:1:2 [0] NCCL INFO Using network IB\n"
    host = write(tmp_path, {"runs/a/log-0": line.replace("IB", "Socket"), "runs/b/log-0": line, "runs/lock": ""})
    os.utime(tmp_path / "runs/a/log-0", (1, 1))
    (file,) = nccl_logs.read(host, {**AT_ONCE, "runs": "/runs"})["files"]
    assert (file["live"], file["lines"]) == (False, [line.strip()])
    assert file["age_s"] < 3600


def test_only_variables_of_the_network_leave_a_pod() -> None:
    every = {"NCCL_IB_HCA": "=mlx5_0", "AWS_SECRET_ACCESS_KEY": "x", "FI_PROVIDER": "efa", "WANDB_API_KEY": "x"}
    assert variables.chosen(every) == {"NCCL_IB_HCA": "=mlx5_0", "FI_PROVIDER": "efa"}


V2 = {
    "sys/fs/cgroup/cpu.stat": "usage_usec 5000\nnr_periods 9\nnr_throttled 3\nthrottled_usec 700\n",
    "sys/fs/cgroup/memory.max": "max\n",
    "sys/fs/cgroup/memory.current": "4096\n",
    "sys/fs/cgroup/memory.events": "oom_kill 1\n",
}
V1 = {
    "sys/fs/cgroup/cpu/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_time 700\n",
    "sys/fs/cgroup/cpuacct/cpuacct.usage": "5000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "8192\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "4096\n",
    "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
}


@pytest.mark.parametrize("files", [V2, V1], ids=["version-2", "version-1"])
def test_cgroups_of_both_versions_are_read(tmp_path: Path, files: Mapping[str, str]) -> None:
    host = write(tmp_path, {**files, "proc/stat": "cpu  10 0 10 100 5 0 0 0 0 0\n"})
    found = machine.read(host, {"sample_s": 0.01})
    assert (found["cpu_used"], found["throttled"], found["node_busy"]) == (0.0, 0.0, 0.0)
    assert found["files"]["memory_used"] == "4096\n"
    assert "oom_kill 1" in found["files"]["memory_events"]
    assert found["swapped"] is None


def test_without_cgroups_nothing_is_known_of_them_and_that_is_no_zero(tmp_path: Path) -> None:
    found = machine.read(Host(tmp_path), {"sample_s": 0.01})
    assert (found["cpu_used"], found["throttled"], found["node_busy"]) == (None, None, None)


def test_a_folder_is_reported_with_the_mount_that_it_is_on(tmp_path: Path) -> None:
    mounts = "overlay / overlay rw 0 0\nserver:/x /data nfs4 rw 0 0\n"
    host = write(tmp_path, {"proc/self/mounts": mounts, "data/sets/a": "", "database/a": ""})
    found = disk.read(host, {"folders": ["/data/sets", "/database", "/nowhere"]})
    assert (found["/data/sets"]["type"], found["/data/sets"]["source"]) == ("nfs4", "server:/x")
    assert found["/database"]["type"] == "overlay"
    assert found["/nowhere"] == {"missing": True}


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100000A:C350 0200000A:733C 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
"""


def test_a_connection_of_the_job_proves_the_way_without_a_new_one(tmp_path: Path) -> None:
    host = write(
        tmp_path,
        {
            "proc/net/tcp": TCP,
            "sys/class/net/eth0/operstate": "up\n",
            "sys/class/net/eth0/mtu": "9000\n",
            "job/hostfile": "lab-0 slots=8\n",
        },
    )
    asked = {"names": ["localhost", "nowhere.invalid"], "ssh": [], "hostfile": "/job/hostfile", "limit_s": 100.0}
    found = network.read(host, {**asked, "master": {"host": "192.0.2.1", "port": 29500}})
    assert found["master"] == "connected"
    assert "127.0.0.1" in found["names"]["localhost"]
    assert isinstance(found["names"]["nowhere.invalid"], str)
    assert found["interfaces"] == {"eth0": {"state": "up", "mtu": 9000}}
    assert found["hostfile"] == "lab-0 slots=8\n"


def test_a_port_that_nobody_listens_at_refuses(tmp_path: Path) -> None:
    asked = {"names": [], "ssh": [{"pod": "lab-1", "host": "127.0.0.1", "port": 1}], "hostfile": "/job/hostfile"}
    found = network.read(Host(tmp_path), {**asked, "master": None, "limit_s": 100.0})
    assert found["ssh"] == {"lab-1": "refused"}
    assert (found["master"], found["hostfile"]) == (None, None)


def test_names_that_get_no_answer_are_reported_so_and_take_no_other_along() -> None:
    answered = threading.Event()
    asked: Mapping[tuple[str, str], Callable[[], Any]] = {("names", "a"): lambda: "b", ("names", "late"): answered.wait}
    told = network._within(2.0, asked)
    answered.set()
    assert told == {("names", "a"): "b", ("names", "late"): "no answer within 2 s"}


def test_a_folder_that_gives_no_answer_is_reported_with_what_it_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = write(tmp_path, {"proc/self/mounts": "server:/x /data nfs4 rw 0 0\n", "data/a": "", "tmp/a": ""})
    gone, whole = threading.Event(), disk._folder
    monkeypatch.setattr(disk, "_folder", lambda h, path, m: gone.wait() if path == "/data" else whole(h, path, m))
    monkeypatch.setattr(disk, "ANSWER_S", 2.0)
    found = disk.read(host, {"folders": ["/tmp", "/data"]})  # noqa: S108
    gone.set()
    assert found["/data"] == {"late": 2.0, "type": "nfs4", "source": "server:/x"}
    assert found["/tmp"]["size"] > 0  # noqa: S108


def standin_nvidia_smi(root: Path, program_: str) -> Host:
    path = root / "usr/bin/nvidia-smi"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{program_}\n")
    path.chmod(0o755)
    return Host(root)


def test_nvidia_smi_is_reported_as_it_is_and_its_complaint_beside_it(tmp_path: Path) -> None:
    (tmp_path / "told.xml").write_text(H100)
    lost = DATA / "nvidia-smi/device-lost.txt"
    found = gpus.read(standin_nvidia_smi(tmp_path, f"/bin/cat {lost} {tmp_path}/told.xml; exit 15"), AT_ONCE)
    assert found["error"].startswith("Unable to determine the device handle for GPU")
    assert found["xml"].endswith(H100[-100:])
    assert (found["missing"], found["late"]) == (False, False)
    assert gpus.read(Host(tmp_path / "other"), AT_ONCE)["missing"] is True


def test_an_nvidia_smi_that_never_ends_is_reported_as_late(tmp_path: Path) -> None:
    found = gpus.read(standin_nvidia_smi(tmp_path, "exec /bin/sleep 60"), {"limit_s": 5.2})
    assert found["late"] is True
