"""Forwards through the real kubectl to containers that run: a replaced pod, a program that crashes, SIGKILL."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.kube import assets, node
from tests.rig.kube.forwarding import children, five_free_ports, forwarding, pods, said, who_answers
from tests.rig.kube.plane import Plane, plane
from tests.rig.needs import need
from tests.rig.tmux.screen import User, user, wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    need(assets.missing() or node.missing())
    with node.network() as address, plane(address, standins=False) as started, node.node(started):
        started.apply(node.serving("hyperpod", 2), node.serving("web", 1))
        started.kubectl("wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s")
        yield started


@pytest.fixture
def me(tmp_path: Path, cluster: Plane) -> Iterator[User]:
    with user(tmp_path) as found:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube/config").write_text(json.dumps(cluster.context("dev-eu")))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/kubectl").symlink_to(cluster.kubectl_program)
        yield found


@pytest.fixture
def base() -> int:
    """The first of five local ports that are free."""
    return five_free_ports()


def test_a_forward_whose_pod_is_replaced_comes_back_by_itself(me: User, cluster: Plane, base: int) -> None:
    first, second = pods(cluster, "hyperpod")
    with forwarding(me, "-l", "app=hyperpod", "--from", base, "--to", 8080):
        wait_until(lambda: (who_answers(base), who_answers(base + 1)) == (first, second), "both pods answer")
        cluster.kubectl("delete", "pod", first, "--wait=false")
        wait_until(lambda: who_answers(base) not in ("", first, second), "its successor answers on the same port", 60)
        assert who_answers(base) in pods(cluster, "hyperpod")
        assert who_answers(base + 1) == second
        wait_until(lambda: f"127.0.0.1:{base} -> {who_answers(base)}:8080: up" in said(me), "it is said to be up")


def test_one_pod_by_name_is_followed_to_its_successor(me: User, cluster: Plane, base: int) -> None:
    (name,) = pods(cluster, "web")
    with forwarding(me, name, f"{base}:8080"):
        wait_until(lambda: who_answers(base) == name, "the pod answers")
        cluster.kubectl("delete", "pod", name, "--wait=false")
        wait_until(lambda: who_answers(base) not in ("", name), "its successor answers on the same port", 60)


def test_a_container_that_is_started_anew_is_found_again(me: User, cluster: Plane, base: int) -> None:
    (name,) = pods(cluster, "web")
    with forwarding(me, name, f"{base}:8080"):
        wait_until(lambda: who_answers(base) == name, "the pod answers")
        cluster.kubectl("exec", name, "--", "/usr/bin/python3", "-ISc", "import os; os.kill(1, 15)", check=False)
        wait_until(lambda: restarts(cluster, name) == "1", "the container was started anew", 60)
        wait_until(lambda: who_answers(base) == name, "the pod answers again", 60)


def restarts(cluster: Plane, pod: str) -> str:
    return cluster.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")


def test_a_killed_command_leaves_no_kubectl(me: User, cluster: Plane, base: int) -> None:
    first, second = pods(cluster, "hyperpod")
    with forwarding(me, "-l", "app=hyperpod", "--from", base, "--to", 8080) as running:
        wait_until(lambda: (who_answers(base), who_answers(base + 1)) == (first, second), "both pods answer")
        running.kill()
        assert running.wait(60) == -signal.SIGKILL
        wait_until(lambda: not children(me), "nothing is left")
    assert who_answers(base) == ""
