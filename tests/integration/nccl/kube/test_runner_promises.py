"""Pods and MPIJobs on a real API keep the promises of every runner (tests/rig/runner_promises.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from gpuctl.edges.kube import cluster as kube
from gpuctl.nccl.runners.kube.model import Settings
from gpuctl.nccl.runners.kube.runner import KubeRunner
from tests.integration.nccl.kube.containers import Containers, Script
from tests.integration.nccl.kube.standin_operator import StandinOperator
from tests.integration.nccl.kube.test_mpijob import ALL, CRD
from tests.rig.kube.plane import Plane, for_tests
from tests.rig.runner_promises import FAILURE, LOG, PROMISES, Behaviour, Site

NODES = ("gpu-0", "gpu-1")
HEADER = LOG.partition("#       size")[0]
SCRIPTS = {
    Behaviour.COMPLETE: (LOG, 0),
    Behaviour.FAILED: (HEADER + FAILURE, 3),
    Behaviour.HANGING: (HEADER, None),
    Behaviour.MISSING: ("gpuctl: missing all_reduce_perf\n", 127),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    for started in for_tests():
        started.kubectl("apply", "-f", "-", stdin=json.dumps(yaml.safe_load(CRD.read_text())))
        started.kubectl("wait", "--for=condition=Established", "crd/mpijobs.kubeflow.org", "--timeout=30s")
        yield started


@pytest.fixture(params=["pods", "MPIJob"])
def site(request: pytest.FixtureRequest, cluster: Plane, tmp_path: Path) -> Iterator[Site]:
    mpijob, script = request.param == "MPIJob", Script()
    settings = Settings(image="example/nccl-tests:1", start_s=20.0, mpijob=mpijob)
    runner = KubeRunner(kube.connect(files=[cluster.kubeconfig], patience_s=15), settings, tmp_path)

    def behave(how: Behaviour) -> None:
        script.text, script.code = SCRIPTS[how]

    def left() -> list[str]:
        names = cluster.kubectl("get", ALL, "-o", "name").split()
        return [name for name in names if "/nccl-" in name]

    with ExitStack() as stack:
        stack.enter_context(Containers(cluster, script))
        if mpijob:
            stack.enter_context(StandinOperator(cluster))
        yield Site(runner, NODES, behave, left, limit_s=5)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_runner_on_kubernetes_keeps_its_promise(promise: Callable[[Site], None], site: Site) -> None:
    promise(site)
