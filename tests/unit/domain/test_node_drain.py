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
    drained = applied(before, node_drain.cordon(before, MARK))
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
