"""Watches: what is asked again, and how soon; who leaves one waits for no answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from gpuctl.edges.kube import watch
from gpuctl.edges.kube.api import Client
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Kind, Object, Request
from gpuctl.edges.kube.library import Configuration
from gpuctl.edges.kube.pod_watch import Pods

PODS = Kind("v1", "Pod", "pods", namespaced=True)
WATCHES = 3


class Watched(Cluster):
    """A cluster without pods. Every watch says these lines and is ended at once; the third one is the last."""

    def __init__(self, *lines: str) -> None:
        super().__init__(Client(Configuration()), "team")
        self.says, self.watches = lines, 0

    def ask(self, request: Request) -> Object:
        return {"items": [], "metadata": {"resourceVersion": "7"}}

    def lines(self, asked: Request, stop: Stop, silent_s: float, opened: Any = None) -> Iterator[str]:
        self.watches += 1
        yield from self.says
        if self.watches == WATCHES:
            stop.set()


class Pauses(Stop):
    """Notes how long was waited, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return self.is_set()


def test_a_watch_that_is_ended_at_once_is_not_asked_for_without_a_pause() -> None:
    pauses = Pauses()
    assert list(watch.watch(Watched(), PODS, {}, pauses)) == [{}]
    assert pauses.seconds == [watch.PAUSE_S] * WATCHES


def test_a_watch_that_told_something_is_asked_for_anew_at_once() -> None:
    pod, pauses = {"metadata": {"name": "a", "resourceVersion": "8"}}, Pauses()
    cluster = Watched(json.dumps({"type": "ADDED", "object": pod}))
    assert list(watch.watch(cluster, PODS, {}, pauses)) == [{}, {"a": pod}, {"a": pod}, {"a": pod}]
    assert pauses.seconds == []


class Mute(Cluster):
    """A cluster that takes a question, and never answers it."""

    def __init__(self) -> None:
        super().__init__(Client(Configuration()), "team")
        self.asked, self.over = threading.Event(), threading.Event()

    def ask(self, request: Request) -> Object:
        self.asked.set()
        self.over.wait(20)
        return {"resources": [], "items": [], "metadata": {"resourceVersion": "7"}}


def test_who_leaves_a_watch_of_pods_waits_for_no_answer() -> None:
    cluster = Mute()
    with Pods(cluster, {}):
        assert cluster.asked.wait(5)
        begun = time.monotonic()
    assert time.monotonic() - begun < 15  # the answer takes 20 s
    cluster.over.set()
