"""Nodes of a store that take the values of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuctl.core.errors import InvalidInput
from gpuctl.reservations.rules.decision import Change
from gpuctl.reservations.rules.model import Node


def configured(
    existing: Mapping[str, Node], nodes: Sequence[Node], doing: str
) -> tuple[Sequence[Change], Sequence[Node]]:
    """Changes to the nodes of a store, and nodes to remove; `InvalidInput` where that would harm a reservation."""
    rest, changes = dict(existing), list[Change]()
    for node in nodes:
        current = rest.pop(node.name, None)
        change = Change(node, 0) if current is None else _changed(current, node, doing)
        changes += [change] if change is not None else []
    for node in rest.values():
        if _in_use(node):
            wrong = f"node {node.name} is not in the configuration, but has reservations"
            raise InvalidInput(doing, wrong, "put it back until they are over, or cancel them")
    return changes, list(rest.values())


def _in_use(node: Node) -> bool:
    return len(node.free) < len(node.allocated)


def _changed(existing: Node, node: Node, doing: str) -> Change | None:
    """The node with the facts of the configuration; None if nothing differs."""
    if existing.place != node.place and _in_use(existing):
        wrong = f"node {node.name} has reservations, whose sessions are of another kind, or in another namespace"
        hint = "name the earlier namespace and context until they are over, or another folder with --state"
        raise InvalidInput(doing, wrong, hint)
    version = existing.version
    if (existing.gpu_type, len(existing.allocated)) != (node.gpu_type, len(node.allocated)):
        if _in_use(existing):
            wrong = f"node {node.name} has other GPUs than before, and reservations on them"
            raise InvalidInput(doing, wrong, "keep its earlier GPUs until they are over")
        return Change(replace(node, version=version + 1), version)
    current = replace(
        existing,
        address=node.address,
        port=node.port,
        efa=node.efa,
        uuids=node.uuids,
        place=node.place,
        zone=node.zone,
        fence=max(existing.fence, node.fence),
    )
    return None if current == existing else Change(replace(current, version=version + 1), version)
