"""ConfigMaps: the pods' start files, and the hostfile."""

from __future__ import annotations

import hashlib
import json
import shlex

from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import scripts

CONFIG = "config"
LISTENING = ("vscode", "jupyter")


def maps(env: Environment) -> list[Object]:
    """Return two ConfigMaps: the hostfile changes with every scale, and pods must not restart for that."""
    return [
        _map(env, f"{env.name}-start", start_files(env)),
        _map(env, f"{env.name}-hosts", {"hostfile": hostfile(env)}),
    ]


def _map(env: Environment, name: str, data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": env.meta(name, CONFIG), "data": data}


def start_files(env: Environment) -> dict[str, str]:
    """Return the programs that start a pod, and their settings."""
    return {
        "prepare.sh": scripts.PREPARE,
        "start.sh": scripts.START,
        "settings.sh": _settings(env),
        "sshd_config": scripts.sshd_config(env.cluster.ports.ssh),
        "ssh_config": scripts.ssh_config(env.cluster.ports.ssh, env.name),
    }


def _settings(env: Environment) -> str:
    """Return the ports and their addresses: unexposed editors listen on localhost only, where forwards arrive."""
    ports, lines = env.cluster.ports, []
    for word in LISTENING:
        lines.append(f"{word}_port={getattr(ports, word)}")
        lines.append(f"{word}_address={'0.0.0.0' if word in ports.expose else '127.0.0.1'}")  # noqa: S104
    return "\n".join([*lines, f"gpus={env.cluster.gpus.per_node}", f"mode={shlex.quote(env.mode)}", ""])


def hostfile(env: Environment) -> str:
    """Return every pod's DNS name with its number of GPUs, in the format of DeepSpeed and MPI."""
    slots = env.cluster.gpus.per_node
    return "".join(f"{env.host(rank)} slots={slots}\n" for rank in range(env.nodes))


def fingerprint(env: Environment) -> str:
    """Return a hash of the start files: a change restarts the pods."""
    return hashlib.sha256(json.dumps(start_files(env), sort_keys=True).encode()).hexdigest()[:16]
