"""Every runner keeps the promises of tests/rig/runner_promises.py; here those that need neither hosts nor a cluster.

tests/integration/nccl holds ssh and Ansible to them (test_runner_promises.py), Slurm (slurm/), pods and MPIJobs
(kube/), and deployed environments (environment/test_real_pods.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from gpuctl.edges.slurm import PROGRAMS
from gpuctl.edges.ssh import Login
from gpuctl.nccl.runners.kube.exec_transport import Pod, PodTransport, pod_options
from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.nccl.runners.slurm.runner import SlurmRunner
from gpuctl.remote.transport import OverSsh
from tests.rig.kube import standin_exec
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.network import Network
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.nccl_fleet.scatter import Scatter
from tests.rig.runner_promises import PROMISES, Behaviour, Site
from tests.rig.standin_nccl_tests import StandinTest

NODES = ("h1", "h2")
PODS = {pod.label: pod for pod in (Pod(f"lab-{n}", f"gpu-{n}", f"lab-{n}.lab.team.svc", f"uid-{n}") for n in (0, 1))}
# Steps run on this machine and are listed by the name of their process; scancel ends them.
SRUN = """name=${2#--job-name=}
case $name in gpuctl-look) ;; *) echo $$ > FOLDER/step-$name ;; esac
while [ "$1" != timeout ]; do shift; done
exec "$@"
"""
SQUEUE = """case "$*" in *--steps*) ;; *) echo "7|RUNNING|None|h[1-2]"; exit ;; esac
for step in FOLDER/step-*; do
    [ -f $step ] && kill -0 $(cat $step) 2>/dev/null && echo "7.${step##*step-}|${step##*step-}"
done
exit 0
"""
SCANCEL = "kill $(cat FOLDER/step-${1#7.})"
SINFO = 'for node in h1 h2; do echo "$node|main*|idle|gpu:8|none"; done'


@pytest.fixture
def standin(tmp_path: Path) -> StandinTest:
    return StandinTest(tmp_path)


@pytest.fixture
def mpirun(standin: StandinTest) -> Site:
    transport = OverSsh({node: Login(node, local=True) for node in NODES})
    runner = MpiRunner(transport, MpirunOptions((str(standin.folder),)))
    return Site(runner, NODES, standin.behave, standin.left)


@pytest.fixture
def environment(standin: StandinTest) -> Iterator[Site]:
    live = [{"metadata": {"name": pod.name, "uid": pod.uid}, "spec": {"nodeName": pod.node}} for pod in PODS.values()]
    with standin_exec.serve(live) as server:
        transport = PodTransport(server.cluster(), PODS, "ml", {})
        runner = MpiRunner(transport, pod_options(MpirunOptions((str(standin.folder),))))
        first, second = PODS
        yield Site(runner, (first, second), standin.behave, standin.left)


@pytest.fixture
def slurm(standin: StandinTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    folder = tmp_path / "slurm"
    folder.mkdir()
    scripts = {"srun": SRUN, "squeue": SQUEUE, "scancel": SCANCEL, "sinfo": SINFO}
    for name in PROGRAMS:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{scripts.get(name, '').replace('FOLDER', str(tmp_path))}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    runner = SlurmRunner(NODES, Settings(search_path=(str(standin.folder),)))
    return Site(runner, NODES, standin.behave, standin.left)


@pytest.fixture
def simulated_fleet() -> Site:
    fleet = SimulatedFleet(
        Network(NODES, dict.fromkeys(NODES, "r1"), (), dict.fromkeys(NODES, 370.0), 1.0, {"r1": 4000.0}),
        Scatter("laplace", 0.003, 0.0),
        Random(1),  # noqa: S311
    )
    kinds = {Behaviour.FAILED: "crash", Behaviour.HANGING: "hang"}

    def behave(how: Behaviour) -> None:
        fleet.faults = [Fault(kinds[how], "node", (node,)) for node in NODES] if how in kinds else []
        fleet.closed = (
            dict.fromkeys(NODES, "all_reduce_perf is not installed there") if how is Behaviour.MISSING else {}
        )

    return Site(fleet, NODES, behave, list)


@pytest.fixture(params=["mpirun", "environment", "slurm", "simulated_fleet"])
def site(request: pytest.FixtureRequest) -> Site:
    chosen: Site = request.getfixturevalue(request.param)
    return chosen


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_runner_keeps_its_promise(promise: Callable[[Site], None], site: Site) -> None:
    promise(site)
