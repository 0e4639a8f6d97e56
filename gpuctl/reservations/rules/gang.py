"""Environment of the nodes of a session, as launchers read it."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.reservations.rules.model import Node, Reservation, Slot

MASTER_PORT = 29500  # torchrun's default


def environment(reservation: Reservation, nodes: Mapping[str, Node], node: str) -> dict[str, str]:
    """Variables of a session on one of its nodes; ranks of nodes follow their names."""
    slots = sorted(reservation.slots, key=lambda slot: slot.node)
    names = [slot.node for slot in slots]
    slot = slots[names.index(node)]
    variables = {"GPUCTL_RESERVATION": reservation.id}
    if nodes[node].pods:  # its GPUs are those that the pod has
        members = [f"{pod_name(reservation, name)}.{reservation.id}" for name in names]
    else:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(_gpu_names(nodes[node], slot))
        members = [nodes[names[0]].address or names[0], *names[1:]]
    if len(slots) > 1:
        variables |= {
            "GPUCTL_NODES": " ".join(members if nodes[node].pods else names),
            "MASTER_ADDR": members[0],
            "MASTER_PORT": str(MASTER_PORT),
            "NNODES": str(len(slots)),
            "NODE_RANK": str(names.index(node)),
        }
    if efa := adapters(nodes[node], slot):
        variables["GPUCTL_EFA_ADAPTERS"] = str(efa)
    return variables


def pod_name(reservation: Reservation, node: str) -> str:
    """Name of the pod of a session on one of its nodes: another one for each attempt, and for each rank of a gang."""
    names = sorted(slot.node for slot in reservation.slots)
    rank = f"-{names.index(node)}" if len(names) > 1 and node in names else ""
    return f"{reservation.id}-{reservation.attempt}{rank}"


def _gpu_names(node: Node, slot: Slot) -> list[str]:
    """UUIDs, since CUDA may number GPUs in another order than their device files; else indexes."""
    return [node.uuids[gpu] if node.uuids else str(gpu) for gpu in slot.gpus]


def adapters(node: Node, slot: Slot) -> int:
    """EFA adapters of a session: all of a whole node, else none, because a part would share them with strangers."""
    return node.efa if len(slot.gpus) == len(node.allocated) else 0
