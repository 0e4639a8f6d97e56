"""How a training begins in pods that are this machine, and when a pod is not waited for any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.environment import EnvironmentRequest, environment
from gpuctl.cluster.train import flow
from gpuctl.cluster.train.launch import Launch
from gpuctl.cluster.train.prepare import Ready
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube.api import Client
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.library import Configuration
from gpuctl.remote import detached
from tests.rig.cluster.files import cluster
from tests.rig.local_pods import Pod


@pytest.fixture
def pods(tmp_path: Path) -> list[Pod]:
    return [Pod(tmp_path / f"runs-{rank}", f"lab-{rank}") for rank in range(2)]


def ready(pods: list[Pod], tmp_path: Path) -> Ready:
    """With a torchrun of ours, where there is one, never the machine's, and a server that does not answer."""
    settings = Configuration()
    settings.host, settings.retries = "http://127.0.0.1:9", False
    away = Cluster(Client(settings), "team", patience_s=0)
    env = environment(cluster(tmp_path), EnvironmentRequest(nodes=2))
    path = {"PATH": f"{tmp_path}/bin"}
    launch = Launch(env, "torchrun", "train.py", (), 2, 1, str(tmp_path), path)
    return Ready(launch, [replace(pod.target, cluster=away) for pod in pods], {}, [], [])


def test_the_pod_in_which_it_cannot_begin_is_named(pods: list[Pod], tmp_path: Path) -> None:
    with pytest.raises(GpuctlError) as caught:
        flow.start(ready(pods, tmp_path), "ann@desk")
    assert str(caught.value) == "cannot start train.py in lab-0: torchrun: No such file or directory"


def test_where_one_pod_cannot_begin_it_is_ended_in_the_others_and_what_nobody_knows_is_reported(
    pods: list[Pod], tmp_path: Path
) -> None:
    program = tmp_path / "bin/torchrun"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    program.chmod(0o755)
    pods[1].broken = True
    with pytest.raises(GpuctlError) as caught:
        flow.start(ready(pods, tmp_path), "ann@desk")
    assert str(caught.value) == "cannot start train.py in lab-1: it does not answer"
    assert caught.value.hint == "not confirmed to have ended in lab-1: --stop tries again"
    [run] = detached.list_runs(pods[0].target)
    assert (run.running, run.exit and run.exit.requested) == (False, True)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "the pod is gone"),
        ({"metadata": {"uid": "b"}}, "the pod was recreated"),
        ({"metadata": {"uid": "a", "deletionTimestamp": "now"}}, "the pod is being deleted"),
        (
            {"metadata": {"uid": "a"}, "status": {"phase": "Failed", "reason": "Evicted", "message": "no disk"}},
            "the pod has ended: Evicted: no disk",
        ),
        ({"metadata": {"uid": "a"}, "status": {"phase": "Running", "reason": "NodeLost"}}, ""),
    ],
)
def test_a_pod_that_does_not_come_back_is_reported_apart_from_one_that_is_out_of_reach(
    found: dict[str, Any] | None, why: str
) -> None:
    assert flow.why_gone(found, "a") == why
