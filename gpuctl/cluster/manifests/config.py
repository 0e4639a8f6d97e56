"""ConfigMaps: what pods run when they start, and who belongs together."""

from __future__ import annotations

import hashlib
import json
import shlex

from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import scripts

CONFIG = "config"
LISTENING = ("vscode", "jupyter")


def maps(env: Environment) -> list[Object]:
    """Two, because the second changes with every scale, and pods are not to start anew for that."""
    return [
        _map(env, f"{env.name}-start", start_files(env)),
        _map(env, f"{env.name}-hosts", {"hostfile": hostfile(env)}),
    ]


def _map(env: Environment, name: str, data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": env.meta(name, CONFIG), "data": data}


def start_files(env: Environment) -> dict[str, str]:
    """The programs of a pod's start, and their settings."""
    return {
        "prepare.sh": scripts.PREPARE,
        "start.sh": scripts.START,
        "settings.sh": _settings(env),
        "sshd_config": scripts.sshd_config(env.cluster.ports.ssh),
        "ssh_config": scripts.ssh_config(env.cluster.ports.ssh, env.name),
    }


def _settings(env: Environment) -> str:
    """Ports, and whom they listen to: what is not exposed only listens inside the pod, where forwards come in."""
    ports, lines = env.cluster.ports, []
    for word in LISTENING:
        lines.append(f"{word}_port={getattr(ports, word)}")
        lines.append(f"{word}_address={'0.0.0.0' if word in ports.expose else '127.0.0.1'}")  # noqa: S104
    return "\n".join([*lines, f"gpus={env.cluster.gpus.per_node}", f"mode={shlex.quote(env.mode)}", ""])


def hostfile(env: Environment) -> str:
    """Every pod by its name in DNS, with the GPUs it has: as DeepSpeed and MPI read it."""
    slots = env.cluster.gpus.per_node
    return "".join(f"{env.host(rank)} slots={slots}\n" for rank in range(env.nodes))


def fingerprint(env: Environment) -> str:
    """Changes when a pod would start otherwise, so that it is then started anew."""
    return hashlib.sha256(json.dumps(start_files(env), sort_keys=True).encode()).hexdigest()[:16]
