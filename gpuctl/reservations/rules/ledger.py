"""The capacity ledger: a GPU has one holder or none, so that it can neither be given twice nor go below zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuctl.reservations.rules.model import Node, Slot


class LedgerError(Exception):
    """A change that would book a GPU twice, or one that does not exist."""


def allocate(node: Node, slot: Slot, reservation: str) -> Node:
    """The node with these GPUs allocated. LedgerError if one is taken or does not exist."""
    if len(set(slot.gpus)) != len(slot.gpus) or not slot.gpus:
        raise LedgerError(f"GPUs {slot.gpus} of {node.name} for {reservation} are none, or not distinct")
    if missing := set(slot.gpus) - set(range(len(node.allocated))):
        raise LedgerError(f"{node.name} has no GPU {min(missing)}")
    if taken := set(slot.gpus) - set(node.free):
        raise LedgerError(f"GPU {min(taken)} of {node.name} is allocated to {node.allocated[min(taken)]}")
    holders = tuple(reservation if index in slot.gpus else holder for index, holder in enumerate(node.allocated))
    return replace(node, allocated=holders, fence=node.fence + 1)


def release(node: Node, reservation: str) -> Node:
    """The node without this reservation; the same node if it holds nothing there."""
    if reservation not in node.allocated:
        return node
    holders = tuple(None if holder == reservation else holder for holder in node.allocated)
    return replace(node, allocated=holders, fence=node.fence + 1)


def slots_of(nodes: Mapping[str, Node], reservation: str) -> tuple[Slot, ...]:
    """GPUs that the ledger allocates to a reservation, by node name."""
    slots = (
        Slot(name, tuple(index for index, holder in enumerate(nodes[name].allocated) if holder == reservation))
        for name in sorted(nodes)
    )
    return tuple(slot for slot in slots if slot.gpus)
