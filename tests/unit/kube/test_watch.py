"""The stream of a watch through kubectl, and what it comes to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.kubectl_watch import events, listed
from gpuctl.edges.processes import Done
from gpuctl.kube.watch import Objects


def thing(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


def test_objects_are_read_one_by_one_whether_indented_or_not() -> None:
    one, two = {"type": "ADDED", "object": thing("a", 1)}, {"type": "DELETED", "object": {"x": "}\n{"}}
    text = json.dumps(one, indent=4) + "\n" + json.dumps(two) + "\n" + json.dumps(one, indent=2) + "\n"
    assert list(events(text.splitlines(keepends=True))) == [one, two, one]


def test_messages_of_kubectl_between_objects_are_skipped() -> None:
    assert list(events(["W1121 throttling\n", '{"type": "ADDED"}\n', "error: closed\n"])) == [{"type": "ADDED"}]


def test_the_empty_list_of_an_unreachable_server_is_not_a_list() -> None:
    empty = json.dumps({"apiVersion": "v1", "items": [], "kind": "PodList", "metadata": {"resourceVersion": ""}})
    assert listed(Done(0, empty.encode(), "")) == json.loads(empty)
    with pytest.raises(GpuctlError, match="i/o timeout"):
        listed(Done(1, empty.encode(), "Unable to connect to the server: dial tcp 192.0.2.1:6443: i/o timeout\n"))


def test_the_objects_of_a_list_have_its_kind() -> None:
    answer = {"kind": "PodList", "items": [thing("a", 1)], "metadata": {"resourceVersion": "2"}}
    assert listed(Done(0, json.dumps(answer).encode(), ""))["items"] == [{"kind": "Pod", **thing("a", 1)}]


def test_a_list_replaces_all_known_objects() -> None:
    objects = Objects()
    objects.apply("ADDED", thing("a", 1))
    early = objects.known
    objects.apply("LIST", {"items": [thing("b", 2)]})
    assert (early, objects.known) == (False, True)
    assert set(objects.by_uid) == {"b"}


def test_an_event_older_than_the_list_changes_nothing() -> None:
    objects = Objects()
    objects.apply("LIST", {"items": [thing("a", 5)]})
    objects.apply("MODIFIED", {**thing("a", 4), "old": True})
    assert "old" not in objects.by_uid["a"]
    objects.apply("DELETED", thing("a", 6))
    assert objects.by_uid == {}
