"""Drain of a node in Kubernetes: cordoned, with marks by which it is taken back only if it is ours. No I/O.

No taint of ours is set: unlike a cordon, it would keep the DaemonSets of the GPU operator from starting again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.engine import typed_json

LABEL = "gpuctl/drained"
ANNOTATION = "gpuctl/drain"
MANAGER = "gpuctl"  # of the field unschedulable, as the API server records it with a change
ROLLOUT = "bootstrap gpu-node"  # how the reasons of roll-outs begin; a drain by an audit replaces them
CONDITION = "GpuctlDrained"  # a type of node conditions, as node-problem-detector adds its own
Node = Mapping[str, Any]
Patch = dict[str, Any]


def mark_of(node: Node) -> Mapping[str, Any] | None:
    """Annotation of a drain by gpuctl (`by`, `at`, `reason`, `run`); None if gpuctl did not drain the node."""
    meta = node["metadata"]
    text = (meta.get("annotations") or {}).get(ANNOTATION)
    if text is None:
        return None
    try:
        mark = typed_json.parse(text)
    except ValueError:
        return None
    return mark if isinstance(mark, dict) and isinstance(mark.get("reason"), str) else None


def is_cordoned(node: Node) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def cordoned_by(node: Node) -> str:
    """Manager of the field unschedulable; "" if the API server names none.

    An annotation of ours outlives a `kubectl uncordon`, and a later cordon is not ours.
    """
    rows = node["metadata"].get("managedFields") or ()
    owners = [row for row in rows if "f:unschedulable" in ((row.get("fieldsV1") or {}).get("f:spec") or {})]
    return str(owners[0].get("manager", "")) if len(owners) == 1 else ""


def is_drained_by_us(node: Node) -> bool:
    return is_cordoned(node) and mark_of(node) is not None and cordoned_by(node) == MANAGER


def state(node: Node, *, undo: bool, ours: str = "", yields: str = "") -> str:
    """due (ours to change), done (nothing to change), others (somebody else cordoned it).

    `ours`: beginning of the reasons that count as ours; "" for all of gpuctl. `yields`: beginning of those that give
    way to a new reason; "" for none.
    """
    mark = mark_of(node) if is_drained_by_us(node) else None
    is_ours = mark is not None and mark["reason"].startswith(ours)
    if not undo and yields and mark is not None and mark["reason"].startswith(yields):
        return "due"
    if undo:
        return "due" if is_ours else "others" if is_cordoned(node) else "done"
    return "due" if not is_cordoned(node) else "done" if is_ours else "others"


def cordon(node: Node, mark: Mapping[str, str]) -> Patch:
    """Merge patch that applies only to this version of the node: one that was changed since is a conflict."""
    meta = {
        "resourceVersion": node["metadata"]["resourceVersion"],
        "labels": {LABEL: "true"},
        "annotations": {ANNOTATION: json.dumps(dict(mark))},
    }
    return {"metadata": meta, "spec": {"unschedulable": True}}


def uncordon(node: Node) -> Patch:
    """Merge patch that removes the cordon and the marks."""
    meta = {
        "resourceVersion": node["metadata"]["resourceVersion"],
        "labels": {LABEL: None},
        "annotations": {ANNOTATION: None},
    }
    return {"metadata": meta, "spec": {"unschedulable": None}}


def condition(mark: Mapping[str, str], cause: str = "AuditFailed") -> Patch:
    """Strategic merge patch of the node's status; `cause`: one word in CamelCase."""
    row = {
        "type": CONDITION,
        "status": "True",
        "reason": cause,
        "message": mark["reason"],
        "lastTransitionTime": mark["at"],
        "lastHeartbeatTime": mark["at"],
    }
    return {"status": {"conditions": [row]}}


def no_condition() -> Patch:
    """Strategic merge patch that removes the condition."""
    return {"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}


def find(nodes: Iterable[Node], name: str, address: str = "") -> Node | None:
    """The node of this name or address in an inventory; None unless it is exactly one."""
    matches = [node for node in nodes if {name, address} & names(node)]
    return matches[0] if len(matches) == 1 else None


def names(node: Node) -> set[str]:
    """Names and addresses by which an inventory may know a node."""
    meta, status = node["metadata"], node.get("status") or {}
    labels = meta.get("labels") or {}
    addresses = {row["address"] for row in status.get("addresses") or ()}
    return {meta["name"], labels.get("kubernetes.io/hostname", ""), *addresses} - {""}
