"""Facts of a made-up node with eight H100: as the probe would give them, without a host."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from gpuctl.engine import answers, fact_types, gpu_xml, typed_json
from tests.rig.gpu_user_trees import row, xml_with

NOW = 1_790_100_000
UID = "4a163a05-439d-484b-8e53-2968bc15824f"
OTHER = "dde1244b-5bb5-4297-b544-85f3bc0d80bf"
STEPS = "0::/system.slice/slurmstepd.scope"
ALICE = "0::/user.slice/user-1000.slice/session-3.scope"
POD = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{'a' * 64}.scope"


def process(pid: int, cgroup: str = ALICE, **more: Any) -> dict[str, Any]:
    """Facts of a process of alice, one hour old."""
    return {
        "pid": pid,
        "name": "python",
        "command": "python train.py",
        "state": "S",
        "blocked_in": None,
        "since": NOW - 3600,
        "start_ticks": 100,
        "uid": 1000,
        "login_uid": 1000,
        "cgroup": cgroup,
        "mounts": "",
        "slurm": {},
        **more,
    }


def facts(*processes: Mapping[str, Any], on: Mapping[int, list[int]] | None = None, **more: Any) -> dict[str, Any]:
    """Facts of a node; `on`: GPU -> pids. Other keys replace those of an idle node."""
    text = xml_with({gpu: [row(pid) for pid in pids] for gpu, pids in (on or {}).items()})
    made = {
        **copy.deepcopy(parsed(text)),
        "hostname": "gpu-1",
        "product": "p5.48xlarge",
        "login": "root",
        "now": NOW,
        "sees_all": True,
        "slurmd": False,
        "kubelet": False,
        "on_bus": 8,
        "pid_namespace": "initial",
        "cgroup_namespace": "initial",
        "open_by": {},
        "processes": {str(one["pid"]): dict(one) for one in processes},
        "pod_devices": [],
        "slurm_jobs": [],
        "pods": {UID: {"namespace": "team-a", "name": "trainer-0"}},
        "containers": {"a" * 64: {"name": "main", "image": None}},
        "sessions": {"3": {"user": "alice", "service": "sshd", "remote": "10.0.0.5", "tty": "pts/0"}},
        "users": {"0": "root", "1000": "alice", "1001": "bob"},
        "slurm_pids": {},
        "unread": {},
        **more,
    }
    assert misfit(made) == ""
    return made


def misfit(made: object) -> str:
    """The first mistake in facts of a node, with its place; "" without one."""
    try:
        answers.recorded_subject(made, fact_types.GpuUse, "facts")
    except typed_json.Misfit as error:
        return str(error)
    return ""


def pod_devices(*devices: str, uid: str = UID) -> list[dict[str, Any]]:
    return [{"pod": uid, "container": "main", "resource": "nvidia.com/gpu", "devices": list(devices)}]


def job(number: str, *gpus: int, known: bool = True) -> dict[str, Any]:
    return {"job": number, "sluid": None, "number": number, "gpus": list(gpus) if known else None}


def uuid(index: int) -> str:
    """UUID of a GPU of the node."""
    return str(parsed(xml_with({}))["gpus"][index]["uuid"])


@cache
def parsed(text: str) -> dict[str, Any]:
    return dict(gpu_xml.parse(text))
