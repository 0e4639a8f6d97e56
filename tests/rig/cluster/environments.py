"""Environments as the doctor reads them, for tests: all is well but for what a test changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuctl.cluster.clusterfile import variables
from gpuctl.cluster.doctor.model import Check, Facts, PodFacts, Trouble
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import config
from gpuctl.domain.findings import Finding, Verdict, group_by_subject
from tests.rig import storage_facts
from tests.rig.cluster import snapshots as cluster
from tests.rig.cluster.snapshots import env_of

DATA = Path(__file__).parents[2] / "data"
H100 = (DATA / "nvidia-smi/570-h100-8gpu.xml").read_text()
ROCE = {
    "network": {
        "rdma": {
            "enabled": True,
            "fabric": "roce",
            "resources": {"nvidia.com/roce": 1},
            "devices": ["mlx5_0", "mlx5_1"],
            "gid_index": 3,
        }
    }
}
READY = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
WAITS = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]
V2 = {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001", "type": "RoCE v2", "net": "net1"}
V1 = {**V2, "index": 2, "type": "IB/RoCE v1"}


def pod(name: str, container: Mapping[str, Any] | None = None, *, ready: bool = True, node: str = "gpu-0") -> Object:
    """A pod that runs and is ready, or whose container is as given."""
    running = {"state": {"running": {"startedAt": "2026-11-21T10:00:00Z"}}}
    status = {
        "name": "ml",
        "image": "quay.io/team/ml:1",
        "imageID": "quay.io/team/ml@sha256:a",
        "ready": ready,
        "restartCount": 0,
    }
    told = {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "conditions": READY if ready else WAITS,
        "containerStatuses": [{**status, **(container or running)}],
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
    }
    meta = {"name": name, "uid": f"uid-{name}", "namespace": "team", "labels": {"controller-revision-hash": "r1"}}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": node} if node else {}, "status": told}


def pending(name: str, said: str = "") -> Object:
    """One that no node has taken."""
    found = pod(name, ready=False, node="")
    placed = {"type": "PodScheduled", "status": "False", "message": said}
    return {**found, "status": {"phase": "Pending", "conditions": [placed] if said else []}}


def event(about: Object, reason: str, message: str, kind: str = "Warning") -> Object:
    return {
        "involvedObject": {"uid": about["metadata"]["uid"], "name": about["metadata"]["name"]},
        "reason": reason,
        "message": message,
        "type": kind,
        "lastTimestamp": "2026-11-21T10:00:00Z",
    }


def owner(name: str = "lab") -> Object:
    return {"kind": "StatefulSet", "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"replicas": 2}}


def facts(folder: Path, *changes: Mapping[str, Any], **changed: Any) -> Facts:
    """Two pods that are ready and tell of themselves. `tell`: what one says otherwise, pod -> subject -> value."""
    tell: Mapping[str, Mapping[str, Any]] = changed.pop("tell", {})
    env = env_of(folder, *changes)
    pods = {name: pod(name, node=f"gpu-{n}") for n, name in enumerate(("lab-0", "lab-1"))}
    usual = Facts(
        env=env,
        mode=env.mode,
        owner=owner(),
        pods=pods,
        missing=[],
        snapshot=cluster.there(),
        preflight=[],
        events=[],
        inside={name: inside(env, rank, tell.get(name, {})) for rank, name in enumerate(pods)},
    )
    return replace(usual, **changed)


def inside(env: Environment, number: int = 0, changed: Mapping[str, Any] | None = None) -> PodFacts:
    """What a healthy pod says of itself; each subject as pod/look.py has it."""
    chosen = {each.name: each.value for each in variables.all_of(env.cluster, env.mode)}
    net = {"state": "up", "mtu": 9000}
    usual: dict[str, Any] = {
        "jobs": {"ranks": ranks(8 * number, 8, chosen), "hidden": 0, "age_s": 5000},
        "nccl_logs": {"files": []},
        "variables": chosen,
        "gpu": {"xml": H100, "error": "", "missing": False, "late": False, "open_module": True},
        "rdma": {"ports": [port("mlx5_0"), port("mlx5_1")], "efa": None, "unread": {}},
        "peer_memory": {"kernel": "5.14.0", "modules": ["nvidia_peermem"], "unread": {}},
        "network": {
            "interfaces": {"lo": {**net, "mtu": 65536}, "eth0": net},
            "names": {env.host(rank): ["10.0.0.1"] for rank in range(env.nodes)},
            "ssh": {f"lab-{1 - number}": "open"},
            "master": "connected",
            "hostfile": config.hostfile(env),
        },
        "machine": machine(),
        "storage_load": storage_facts.facts(path="", mount=None, trial=None),
        "disk": {path: room() for path in ("/dev/shm", "/workspace", "/tmp")},  # noqa: S108
    }
    for subject, value in (changed or {}).items():
        usual[subject] = {**usual[subject], **value} if isinstance(value, Mapping) else value
    return PodFacts(usual)


def ranks(first: int, count: int, variables: Mapping[str, str] | None = None, **changed: Any) -> list[dict[str, Any]]:
    """Ranks that poll."""
    usual = {
        "name": "python3",
        "state": "R",
        "wait": "",
        "still": False,
        "helpers": 4,
        "world": 16,
        "variables": {**(variables or {}), "LOCAL_WORLD_SIZE": str(count)},
        "memlock": "unlimited",
        "age_s": 4000,
    }
    return [{**usual, "rank": first + n, "pid": 100 + n, **changed} for n in range(count)]


def port(device: str, **changed: Any) -> dict[str, Any]:
    usual = {"device": device, "port": 1, "efa": False, "state": "ACTIVE", "link": "Ethernet", "gids": [V1, V2]}
    rest = {"physical": "LinkUp", "rate_gbps": 400.0, "net": "net1", "firmware": "28.39.1002", "numa": "0"}
    return {**usual, **rest, **changed}


def machine(**changed: Any) -> dict[str, Any]:
    files = {"memory_limit": "137438953472\n", "memory_used": "1073741824\n", "memory_events": "oom_kill 0\n"}
    usual = {
        "files": files,
        "cpu_used": 8.0,
        "throttled": 0.0,
        "node_busy": 9.0,
        "swapped": 0,
        "cpus": 64,
        "pressure": {},
        "pod_pressure": {name: pressure(0.0) for name in ("cpu", "memory", "io")},
        "allowed": "0-31",
        "nodes": {"0": "0-31", "1": "32-63"},
        "gpu_nodes": [0],
        "memlock": "unlimited",
        "capabilities": "0000000000000000",
    }
    return {**usual, **changed}


def pressure(share: float) -> str:
    """As the kernel writes it."""
    return f"some avg10={share:.2f} avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def room(**changed: Any) -> dict[str, Any]:
    usual = {"size": 2**35, "free": 2**34, "inodes": 1000, "inodes_free": 900, "type": "tmpfs", "source": "tmpfs"}
    return {**usual, **changed}


def check(trouble: Trouble, name: str) -> Check:
    (found,) = (each for each in trouble.checks if each.name == name)
    return found


def lines(found: Sequence[Finding]) -> list[str]:
    """What is not OK, in one line each."""
    told = group_by_subject(found)
    return [f"{each.verdict} {each.subject}: {each.message}" for each in told if each.verdict is not Verdict.OK]
