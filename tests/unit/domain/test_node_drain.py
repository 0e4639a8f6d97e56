"""Drain of a node in Kubernetes: set once, and taken back only if it is ours."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.domain import node_drain

MARK = {"by": "alice@laptop", "at": "2026-11-27T10:00:00Z", "reason": "xid 79", "run": "1"}


def node(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "resourceVersion": "7", "labels": {"kubernetes.io/hostname": "gpu-1"}},
        "spec": spec,
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    }


def owned(live: dict[str, Any], manager: str) -> dict[str, Any]:
    """A node whose field unschedulable was set by this manager, as the API server records it."""
    fields: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
    rows = [
        {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}, "subresource": "status"},
        {"manager": manager, "operation": "Update", "fieldsV1": fields},
    ]
    return {**live, "metadata": {**live["metadata"], "managedFields": rows}}


def applied(live: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A merge patch, as the API server applies it."""
    merged = dict(live)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = applied(dict(merged.get(name) or {}), value) if isinstance(value, dict) else value
    return merged


def test_a_drain_and_its_return_leave_the_node_as_it_was() -> None:
    before = node()
    drained = owned(applied(before, node_drain.cordon(before, MARK)), node_drain.MANAGER)
    assert node_drain.is_cordoned(drained)
    assert node_drain.mark_of(drained) == MARK
    assert node_drain.state(drained, undo=False) == "done"
    assert node_drain.state(drained, undo=True) == "due"
    after = applied(drained, node_drain.uncordon(drained))
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    assert node_drain.state(after, undo=True) == "done"


def test_a_cordon_of_others_is_left_in_both_directions() -> None:
    theirs = node(unschedulable=True)
    assert node_drain.state(theirs, undo=False) == "others"
    assert node_drain.state(theirs, undo=True) == "others"


def test_a_mark_that_outlives_the_cordon_is_no_drain() -> None:
    drained = applied(node(), node_drain.cordon(node(), MARK))
    freed = applied(drained, {"spec": {"unschedulable": None}})
    assert node_drain.mark_of(freed) == MARK
    assert node_drain.state(freed, undo=True) == "done"
    assert node_drain.state(freed, undo=False) == "due"


@pytest.mark.parametrize("manager", ["kubectl-cordon", "node-problem-remedy", ""])
def test_a_cordon_of_others_on_a_node_with_a_mark_of_ours_is_theirs(manager: str) -> None:
    marked = applied(node(), node_drain.cordon(node(), MARK))
    theirs = owned(marked, manager) if manager else marked
    assert node_drain.state(theirs, undo=True) == "others"
    assert node_drain.state(theirs, undo=False) == "others"


def test_a_cordon_that_several_managers_own_is_not_ours() -> None:
    shared = owned(applied(node(), node_drain.cordon(node(), MARK)), node_drain.MANAGER)
    rows = shared["metadata"]["managedFields"]
    rows.append({**rows[-1], "manager": "argocd", "operation": "Apply"})
    assert node_drain.state(shared, undo=True) == "others"


def test_an_audit_replaces_the_reason_of_a_roll_out_which_then_leaves_the_node() -> None:
    mark = {**MARK, "reason": f"{node_drain.ROLLOUT}: driver 580.178.04"}
    drained = owned(applied(node(), node_drain.cordon(node(), mark)), node_drain.MANAGER)
    assert node_drain.state(drained, undo=False, yields=node_drain.ROLLOUT) == "due"
    again = owned(applied(drained, node_drain.cordon(drained, MARK)), node_drain.MANAGER)
    assert node_drain.state(again, undo=False, yields=node_drain.ROLLOUT) == "done"
    assert node_drain.state(again, undo=True, ours=node_drain.ROLLOUT) == "others"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"reason": 1}'])
def test_a_mark_that_is_not_ours_to_read_is_nobodys(text: str) -> None:
    live = node(unschedulable=True)
    live["metadata"]["annotations"] = {node_drain.ANNOTATION: text}
    assert node_drain.mark_of(live) is None
    assert node_drain.state(live, undo=True) == "others"


def test_patches_hold_for_the_version_that_was_shown() -> None:
    assert node_drain.cordon(node(), MARK)["metadata"]["resourceVersion"] == "7"
    assert node_drain.uncordon(node())["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize("name", ["n1", "gpu-1", "10.0.0.1"])
def test_a_node_is_found_by_name_label_or_address(name: str) -> None:
    other = {"metadata": {"name": "n2"}}
    assert node_drain.find([node(), other], name) == node()
    assert node_drain.find([node(), node()], name) is None
    assert node_drain.find([other], name) is None
