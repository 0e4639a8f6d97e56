"""NCCL tests in the pods of an environment that is deployed: measured, told where they hang or crash, cleaned up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpuctl.cluster.manifests.scripts import HOME
from gpuctl.edges.kube import python
from gpuctl.nccl import plan
from gpuctl.nccl.model import Sweep
from gpuctl.nccl.runners.kube.exec_transport import pod_options
from gpuctl.nccl.runners.mpirun import MpiRunner, MpirunOptions
from gpuctl.remote.transport import RunningProgram
from gpuctl.workflows import nccl_on_cluster
from tests.integration.cluster.deploy.lab import wait_for
from tests.integration.cluster.deploy.real_node import IMAGE, VOLUMES
from tests.integration.nccl.environment.deployed import LABELS, RAIL, Deployed, deployed
from tests.rig.command import Gpuctl, Said
from tests.rig.kube.node import NAME
from tests.rig.runner_promises import PROMISES as RUNNER_PROMISES
from tests.rig.runner_promises import Behaviour, Site
from tests.rig.transport_promises import (
    PROMISES,
    Reached,
    ends_a_program_whose_connection_is_lost_and_says_that_it_was_lost,
)

FIRST, SECOND = LABELS
MIB = 1 << 20


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("environment")) as found:
        yield found


@pytest.fixture
def user(pods: Deployed, tmp_path: Path) -> Iterator[Gpuctl]:
    """Who runs tests there; nothing of one is left behind."""
    pods.fabric()
    yield Gpuctl(tmp_path)
    assert pods.left() == []


def words(pods: Deployed, *more: str) -> list[str]:
    # Processors are few: whoever waits leaves them to others.
    quick = ["-b", "8M", "-e", "64M", "--env", "OMPI_MCA_mpi_yield_when_idle=1", "--env", "NCCL_ALGO=Ring"]
    return ["nccl", "run", "--cluster", str(pods.path), *quick, *more]


def run(user: Gpuctl, pods: Deployed, *more: str) -> Said:
    return user(*words(pods, *more), KUBECONFIG=str(pods.lab.plane.kubeconfig))


def cut(program: RunningProgram) -> None:
    """Break the connection to a program, as a proxy in between does."""
    assert isinstance(program, python.Running)
    assert program._program is not None
    program._program._socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "promise",
    [*PROMISES, ends_a_program_whose_connection_is_lost_and_says_that_it_was_lost],
    ids=lambda promise: promise.__name__,
)
def test_exec_keeps_the_promises_of_every_transport(promise: Callable[[Reached], None], pods: Deployed) -> None:
    place = nccl_on_cluster.Place(pods.lab.cluster(), pods.env, 2)
    transport = nccl_on_cluster.transport(place, place.pods[0])
    promise(Reached(transport, FIRST, cut=cut))


@pytest.fixture
def site(pods: Deployed) -> Iterator[Site]:
    place = nccl_on_cluster.Place(pods.lab.cluster(), pods.env, 2)
    runner = MpiRunner(nccl_on_cluster.transport(place, place.pods[0]), pod_options(MpirunOptions()))
    program = pods.network.with_name("all_reduce_perf")
    away = program.with_name("away")
    faults = {Behaviour.FAILED: f"crash {{}} {64 * MIB}", Behaviour.HANGING: f"hang {{}} {64 * MIB}"}

    def behave(how: Behaviour) -> None:
        pods.fabric(*(faults[how].format(host) for host in ("lab-0", "lab-1") if how in faults))
        if how is Behaviour.MISSING:
            program.rename(away)

    sweep = plan.with_env(Sweep(begin_bytes=32 * MIB, end_bytes=256 * MIB, gpus_per_node=2, limit_s=60), plan.RING)
    yield Site(runner, (FIRST, SECOND), behave, pods.left, limit_s=10, sweep=sweep)
    if away.exists():
        away.rename(program)
    pods.fabric()


@pytest.mark.parametrize("promise", RUNNER_PROMISES, ids=lambda promise: promise.__name__)
def test_an_environment_keeps_the_promises_of_every_runner(promise: Callable[[Site], None], site: Site) -> None:
    promise(site)


def test_two_pods_are_measured_with_the_environment_that_training_has(user: Gpuctl, pods: Deployed) -> None:
    said = run(user, pods, "-o", "json")
    assert said.code == 0, said.err
    assert "in 2 pods of lab, which is deployed" in said.err
    (launch,) = said.json["launches"]
    measured = launch["run"]
    assert launch["nodes"] == list(LABELS)
    assert (measured["outcome"], len(measured["rows"])) == ("complete", 4)
    assert [rank["host"] for rank in measured["ranks"]] == [FIRST, FIRST, SECOND, SECOND]
    assert [one["nics"] for one in measured["transport"]["ranks"]] == [[f"{RAIL}:1/IB"]] * 4
    kept = user("nccl", "history")
    assert f":{pods.lab.plane.port} lab" in kept.out


def test_the_bandwidth_between_the_pods_is_kept_and_later_compared(user: Gpuctl, pods: Deployed) -> None:
    for volume in (pods.network.parents[1] / VOLUMES).iterdir():
        volume.chmod(0o777)  # as storage does that heeds fsGroup
    around = {"KUBECONFIG": str(pods.lab.plane.kubeconfig)}
    command = ["cluster", "test", str(pods.path), "--bandwidth", "-o", "json"]
    first = user(*command, **around)
    assert "baseline: saved 1 values in" in first.err, first.out
    bandwidth = first.json["bandwidth"]
    (pair,) = bandwidth["pairs"]
    assert (bandwidth["baseline_of"], pair["baseline_gbs"], pair["verdict"]) == (None, None, "OK")
    assert pair["nodes"] == [NAME, NAME]
    second = user(*command, **around)
    assert "baseline: saved" not in second.err
    (compared,) = second.json["bandwidth"]["pairs"]
    assert compared["baseline_gbs"] == pair["busbw_gbs"]
    assert any(finding["check"] == "bandwidth" for finding in second.json["findings"])


def test_ranks_that_hang_are_named_with_pod_and_node_and_ended(user: Gpuctl, pods: Deployed) -> None:
    pods.fabric(f"hang lab-1 {16 * MIB}")
    said = run(user, pods, "--timeout", "25")
    assert said.code == 1, said.err
    assert f"no end within 25 s, after 8M: on {SECOND} ranks 2, 3 are doing nothing; {FIRST} waits for it" in said.out


def test_a_rank_that_crashes_is_named(user: Gpuctl, pods: Deployed) -> None:
    pods.fabric(f"crash lab-1 {16 * MIB}")
    said = run(user, pods, "--no-preflight", "-o", "json")
    assert said.code == 1, said.err
    (launch,) = said.json["launches"]
    assert launch["run"]["outcome"] == "failed"
    assert SECOND in launch["run"]["cause"]


def test_ctrl_c_leaves_nothing_in_the_pods(user: Gpuctl, pods: Deployed) -> None:
    pods.fabric("pace_ms 4000")
    running = user.start(*words(pods, "--no-preflight"), KUBECONFIG=str(pods.lab.plane.kubeconfig))
    wait_for(lambda: "all_reduce_perf" in pods.inside(1, "ps", "-eo", "comm="))
    running.send_signal(signal.SIGINT)
    said = user.said(running)
    assert said.code == 130, said.err
    assert "broken off" in said.out
    assert pods.left() == []


def test_a_connection_that_is_cut_leaves_nothing_in_the_pods(user: Gpuctl, pods: Deployed) -> None:
    pods.fabric("pace_ms 4000")
    running = user.start(*words(pods, "--no-preflight"), KUBECONFIG=str(pods.lab.plane.kubeconfig))
    wait_for(lambda: "all_reduce_perf" in pods.inside(1, "ps", "-eo", "comm="))
    os.kill(running.pid, signal.SIGKILL)
    user.said(running)
    wait_for(lambda: pods.left() == [])


def test_a_training_in_the_pods_is_not_disturbed(user: Gpuctl, pods: Deployed) -> None:
    training = "import os,time; open(os.environ['HOME'] + '/rank','w').write(str(os.getpid())); time.sleep(600)"
    env = ("env", "RANK=1", "WORLD_SIZE=2", "python3", "-c", training)
    argv = [pods.lab.plane.kubectl_program, f"--kubeconfig={pods.lab.plane.kubeconfig}", "-n", pods.lab.namespace]
    with subprocess.Popen([*argv, "exec", "lab-1", "--", *env], stdout=subprocess.DEVNULL) as job:
        wait_for(lambda: "rank" in pods.inside(1, "ls", HOME).split())
        said = run(user, pods, "--nodes", "lab-1,lab-0")
        pods.inside(1, "sh", "-c", f"kill $(cat {HOME}/rank)")
        job.wait(60)
    assert said.code == 1
    assert f"{SECOND}: a job runs there: rank 1: python3" in said.err
    assert "nothing was run" in said.err


def test_an_environment_that_is_named_is_meant(user: Gpuctl, pods: Deployed) -> None:
    said = run(user, pods, "--environment", "other")
    assert said.code == 2, said.err
    assert "no environment other is in" in said.err


def test_where_nothing_is_deployed_pods_of_its_own_are_as_the_file_says(
    user: Gpuctl, pods: Deployed, tmp_path: Path
) -> None:
    told = yaml.safe_load(pods.path.read_text())
    told["cluster"]["environment"] = "other"
    path = tmp_path / "other.yaml"
    path.write_text(yaml.safe_dump(told))
    said = run(user, replace(pods, path=path), "--kind", "single", "--nodes", NAME, "-o", "json")
    assert "in pods of its own, for other is not deployed" in said.err
    assert said.code == 3, said.err
    (launch,) = said.json["launches"]
    assert (launch["nodes"], launch["sweep"]["gpus_per_node"]) == ([NAME], 2)
    assert f"the image {IMAGE} has no all_reduce_perf" in launch["run"]["cause"]
