"""Services of the GPUs that can be restarted, and what a restart disturbs. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuctl.core.text import named
from gpuctl.nodes.judge import label
from gpuctl.nodes.model import Node, State


@dataclass(frozen=True)
class Service:
    """`units`: names of its systemd unit, the first that a host has counts. `disturbs`: what its restart does to work.

    `module`: kernel module to load again instead. `pods`: labels of its pods instead, in any namespace.
    """

    disturbs: str
    units: tuple[str, ...] = ()
    module: str = ""
    pods: tuple[Mapping[str, str], ...] = ()


SERVICES: Mapping[str, Service] = {
    "efa": Service("connections of all jobs through EFA break", module="efa"),
    "fabricmanager": Service(
        "jobs that use NVLink through switches fail; GPUs leave the fabric until it has started",
        ("nvidia-fabricmanager.service",),
    ),
    "persistenced": Service(
        "GPUs without a process are initialised again, and lose clocks and power limits that were set",
        ("nvidia-persistenced.service",),
    ),
    "dcgm": Service(
        "metrics have a gap, and groups and health watches of its clients are lost",
        ("nvidia-dcgm.service", "dcgm.service", "nv-hostengine.service"),
    ),
    "kubelet": Service(
        "the node is NotReady for a moment; probes and exec sessions break, pods stay",
        ("kubelet.service", "snap.kubelet-eks.daemon.service", "k3s-agent.service", "rke2-agent.service"),
    ),
    "device-plugin": Service(
        "GPUs cannot be given to new pods until it has registered again; pods keep theirs",
        pods=(
            {"app": "nvidia-device-plugin-daemonset"},
            {"app.kubernetes.io/name": "nvidia-device-plugin"},
            {"name": "nvidia-device-plugin-ds"},
        ),
    ),
}


def against_restart(node: Node) -> list[str]:
    """Reasons not to disturb a node: only if all its GPUs are idle, and nothing of them is unknown, it is free."""
    if node.why:
        return [f"what uses its GPUs is unknown: {node.why}"]
    reasons = _users(node, None)
    reasons += [
        f"GPU {gpu.index} is {'UNKNOWN' if gpu.state is State.UNKNOWN else gpu.state}: {gpu.why}"
        for gpu in node.gpus
        if gpu.state not in (State.IDLE, State.USED)
    ]
    lost = (node.total or 0) - len(node.gpus)
    return reasons + ([f"{lost} of its GPUs do not answer, so that what uses them is unknown"] if lost > 0 else [])


def against_reset(node: Node, index: int) -> list[str]:
    """Reasons not to reset a GPU: its users, and the job or pod that has it.

    An ill GPU may report no processes; the node itself then looks who holds the device open.
    """
    gpu = next((one for one in node.gpus if one.index == index), None)
    if gpu is None:
        return [f"nvidia-smi lists no GPU {index}: it lists {len(node.gpus)}"]
    if not gpu.uuid:
        return [f"GPU {index} reports no UUID, and no other name is safe: only a reboot helps"]
    held = [f"GPU {index} is reserved: {gpu.why}"] if gpu.state is State.RESERVED else []
    return [*_users(node, index), *held]


def against_any_use(node: Node) -> list[str]:
    """Reasons not to reset a GPU of a node that must be free: users of any GPU, and jobs or pods that have one."""
    if node.why:
        return [f"what uses its GPUs is unknown: {node.why}"]
    held = [gpu for gpu in node.gpus if gpu.state is State.RESERVED]
    return [*_users(node, None), *(f"GPU {gpu.index} is reserved: {gpu.why}" for gpu in held)]


def _users(node: Node, index: int | None) -> list[str]:
    return [
        f"GPU {named([str(gpu) for gpu in gpus], 16)}: {label(user)} works there"
        for user in node.users
        if not user.daemon and (gpus := [gpu for gpu in user.gpus if index in (None, gpu)])
    ]
