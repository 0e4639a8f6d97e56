"""Launches as MPIJobs on a real Kubernetes API: made, waited for, read, and all removed; the operator is a stand-in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.kube import cluster as kube
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.runners.kube import mpijob
from gpuctl.nccl.runners.kube.model import Settings
from gpuctl.nccl.runners.kube.runner import KubeRunner
from tests.integration.nccl.kube.containers import DATA, Containers, Script
from tests.integration.nccl.kube.standin_operator import StandinOperator
from tests.rig.kube.plane import Plane, for_tests

CRD = Path(__file__).parents[3] / "data/nccl_kube/mpijob-crd-v2beta1.yaml"
ALL = "mpijobs,jobs,pods,services,secrets,configmaps"
PAIR = ("gpu-0", "gpu-1")
COMPLETE = (DATA / "a100_2n16g_elided_noavg.log").read_text()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    for started in for_tests():
        started.kubectl("apply", "-f", "-", stdin=json.dumps(yaml.safe_load(CRD.read_text())))
        started.kubectl("wait", "--for=condition=Established", "crd/mpijobs.kubeflow.org", "--timeout=30s")
        yield started


@pytest.fixture
def nothing_left(cluster: Plane) -> Iterator[None]:
    yield
    left = cluster.kubectl("get", ALL, "-o", "name").split()
    assert [name for name in left if "/nccl-" in name] == []


def run(cluster: Plane, broken_off: Any = lambda: False, **more: Any) -> tuple[LaunchResult, list[str]]:
    said: list[str] = []
    limit_s = more.pop("limit_s", 30)
    settings = Settings(**{"image": "example/nccl-tests:1", "start_s": 20.0, "mpijob": True, **more})
    found = KubeRunner(kube.connect(files=[cluster.kubeconfig], patience_s=15), settings)
    (ended,) = found.run([Launch(PAIR, Sweep(limit_s=limit_s))], lambda _, words: said.append(words), broken_off)
    return ended, said


@pytest.mark.usefixtures("nothing_left")
def test_a_run_through_the_operator_is_read_and_all_of_it_removed(cluster: Plane) -> None:
    with StandinOperator(cluster), Containers(cluster, Script(COMPLETE)) as script:
        ended, said = run(cluster)
    assert ended.run.outcome is Outcome.COMPLETE, ended.run.cause
    assert len(ended.run.rows) == COMPLETE.count(" float ")
    assert {rank.host for rank in ended.run.ranks} == set(PAIR)
    assert ended.lost == ()
    assert said[:2] == ["its MPIJob is made", "started"]
    (name,) = script.seen
    assert "-launcher-" in name


@pytest.mark.usefixtures("nothing_left")
def test_a_failure_is_told_and_leaves_nothing(cluster: Plane) -> None:
    text = "w1: Test NCCL failure all_reduce.cu:44 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '\n"
    with StandinOperator(cluster), Containers(cluster, Script(text, code=3)):
        ended, _ = run(cluster)
    assert ended.run.outcome is Outcome.FAILED
    assert "unhandled system error" in str(ended.run.cause)


@pytest.mark.usefixtures("nothing_left")
def test_breaking_off_removes_all(cluster: Plane) -> None:
    with StandinOperator(cluster), Containers(cluster, Script(COMPLETE[:3000], code=None)) as script:
        ended, _ = run(cluster, broken_off=lambda: bool(script.seen))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.KILLED, "broken off")


@pytest.mark.usefixtures("nothing_left")
def test_ctrl_c_removes_all_too(cluster: Plane) -> None:
    with StandinOperator(cluster), Containers(cluster, Script("", code=None)) as script:

        def interrupted() -> bool:
            if script.seen:
                raise KeyboardInterrupt
            return False

        with pytest.raises(KeyboardInterrupt):
            run(cluster, broken_off=interrupted)


@pytest.mark.usefixtures("nothing_left")
def test_without_an_operator_the_run_never_begins_and_says_so(cluster: Plane) -> None:
    begun = time.monotonic()
    ended, _ = run(cluster, start_s=3.0)
    assert ended.run.outcome is Outcome.EMPTY
    assert "nothing acts on its MPIJob: is the MPI operator running?" in str(ended.run.cause)
    assert time.monotonic() - begun < 20


def test_it_is_chosen_where_it_is_served_and_allowed(cluster: Plane) -> None:
    found = kube.connect(files=[cluster.kubeconfig])
    assert mpijob.chosen(found, None) == (True, "as MPIJobs of the MPI operator; --no-mpijob runs without it")
    assert mpijob.chosen(found, False) == (False, "")


def test_who_may_not_make_mpijobs_gets_pods_and_is_told(cluster: Plane) -> None:
    found = kube.connect(files=[cluster.as_account(cluster.folder)])
    assert mpijob.chosen(found, None) == (
        False,
        "in pods of its own: you have no permission to create MPIJobs in default",
    )
    with pytest.raises(InvalidInput, match="you have no permission to create them in default"):
        mpijob.chosen(found, True)
