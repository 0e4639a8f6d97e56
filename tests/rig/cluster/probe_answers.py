"""What a pod answers, for tests: all well, but for what is changed."""

from __future__ import annotations

from typing import Any

from gpuctl.cluster.environment import Environment
from gpuctl.cluster.probe.model import Facts

LISTED = "".join(f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{n})\n" for n in range(8))


def facts(env: Environment, rank: int, **changes: Any) -> Facts:
    """The answer of the pod of a rank in an environment where nothing is wrong."""
    hosts = [env.host(number) for number in range(env.nodes)]
    told: dict[str, Any] = {
        "answers": {"gpus": {"code": 0, "text": LISTED}, **{f"ssh {host}": {"code": 0, "text": ""} for host in hosts}},
        "script": {"sha256": "a" * 64, "size": 10},
        "hostfile": {"text": "".join(f"{host} slots=8\n" for host in hosts)},
        "programs": {
            "deepspeed": "/usr/bin/deepspeed",
            "pdsh": "/usr/bin/pdsh",
            "ssh": "/usr/bin/ssh",
            "torchrun": "/t",
        },
        "no_ssh": True,
        "devices": {"gpus": [], "infiniband": ["mlx5_0"], "verbs": ["uverbs0"]},
        "shm": {"bytes": 32 << 30, "free": 32 << 30},
        "memlock": {"bytes": None, "capabilities": "0000000000004000"},
        "workspace": {"user": 1000, "writable": True},
        "trainings": [],
        "names": {host: ["10.0.0.1"] for host in hosts},
        "reached": None if rank == 0 else "ok",
        "says": {"NODE_RANK": str(rank)},
        "ds_env": ["", ""],
    }
    return Facts(env.pod_name(rank), {**told, **changes})


def gpus(code: int | None, text: str, why: str = "") -> dict[str, Any]:
    """The answers with another one of nvidia-smi -L."""
    return {"answers": {"gpus": {"code": code, "text": text, "why": why}}}
