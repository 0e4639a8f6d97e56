"""A cluster's objects: lists of several pages are whole or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuctl.domain.kube_errors import NotFound
from gpuctl.edges.kube.api import Client
from gpuctl.edges.kube.cluster import Cluster, Kind, Object, Request
from gpuctl.edges.kube.library import Configuration

GONE = NotFound("list pods", "the provided continue parameter is too old")
PODS = Kind("v1", "Pod", "pods", namespaced=True)


def page(name: str, more: str = "") -> Object:
    return {"items": [{"metadata": {"name": name}}], "metadata": {"resourceVersion": "7", "continue": more}}


class Pages(Cluster):
    """A cluster that gives these answers, one after the other."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(Client(Configuration()), "team")
        self.answers: Sequence[Any] = answers
        self.asked: list[str] = []

    def ask(self, request: Request) -> Object:
        self.asked.append(dict(request.query).get("continue", ""))
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        found: Object = answer
        return found


def test_pages_are_put_together() -> None:
    cluster = Pages(page("a", "next"), page("b"))
    assert [each["metadata"]["name"] for each in cluster.find(PODS, {})] == ["a", "b"]
    assert cluster.asked == ["", "next"]


def test_a_list_whose_rest_is_forgotten_begins_again_and_is_not_taken_for_empty() -> None:
    cluster = Pages(page("a", "next"), GONE, page("a", "other"), page("b"))
    assert [each["metadata"]["name"] for each in cluster.find(PODS, {})] == ["a", "b"]
    assert cluster.asked == ["", "next", "", "other"]


def test_what_is_not_there_is_no_list() -> None:
    with pytest.raises(NotFound):
        Pages(GONE).find(PODS, {})
