"""Owners of processes in jobs of a real Slurm with control groups (version 1, several slurmd on one machine).

Stand-in: nvidia-smi, whose list of processes points at true pids.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import slurm_job, slurm_node
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_use
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result

from gpuctl.nodes import facts_shape
from gpuctl.nodes.model import Node, State
from gpuctl.nodes.node_use import node as use_of
from tests.integration.nccl.slurm.site import CGROUPS, Site, missing, started
from tests.rig.gpu_user_trees import row, xml_with
from tests.rig.host import wait_until
from tests.rig.needs import need

SECONDS = "1234"  # by which the job's process is told from others


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    need(missing() or ("" if (CGROUPS / "freezer").is_dir() else "this Slurm takes control groups of version 1"))
    with started("cgroup") as running:
        yield running


@pytest.fixture
def job(site: Site) -> Iterator[str]:
    """Number of a job with one GPU."""
    script = site.state / "job.sh"
    script.write_text(f"#!/bin/sh\nexec sleep {SECONDS}\n")
    options = ["--parsable", "--gres=gpu:h200:1", "--nodelist=h2", "--output=/dev/null", "--job-name=train"]
    number = site.ask("sbatch", *options, str(script)).strip()
    try:
        wait_until(lambda: bool(pids()), 60, "the job does not start")
        yield number
    finally:
        site.ask("scancel", "--full", number)
        site.all_idle()


def pids() -> list[int]:
    """The job's process, by this machine's numbering."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{SECONDS}\0".encode():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


class StandinSmi(Host):
    """This machine, whose nvidia-smi lists these processes."""

    def __init__(self, on: Mapping[int, Sequence[int]]) -> None:
        super().__init__()
        self.on = on

    def run(self, *argv: str, **more: Any) -> Result:
        """See Host."""
        if argv[0] != "nvidia-smi":
            return super().run(*argv, **more)
        return Result(0, xml_with({gpu: [row(pid, "sleep") for pid in pids] for gpu, pids in self.on.items()}), "")


def use(on: Mapping[int, Sequence[int]]) -> Node:
    facts = json.loads(json.dumps(gpu_use.read(StandinSmi(on), {})))
    assert facts_shape.misfit(facts) == ""
    # CI may run in a container; that is told apart in tests/integration/test_nodes.py.
    return use_of("h2", {**facts, "pid_namespace": "initial"})


def test_processes_of_a_job_have_its_number_and_step(job: str) -> None:
    one = use({0: pids()})
    [user] = one.users
    assert (user.kind, user.who, user.what) == ("slurm job", "root", f"job {job} step batch")
    assert user.details["job_name"] == "train"
    assert (user.foreign, user.unallocated) == ({}, ())


def test_a_gpu_of_a_job_without_a_process_is_reserved(job: str) -> None:
    one = use({})
    assert (one.gpus[0].state, one.gpus[0].holders) == (State.RESERVED, (f"job {job}",))
    assert {gpu.state for gpu in one.gpus[1:]} == {State.IDLE}


def test_others_on_the_gpu_of_a_job_are_foreign(job: str) -> None:
    with subprocess.Popen(["sleep", "1236"]) as other:  # of this test, in no job
        try:
            users = {user.kind: user for user in use({0: pids(), 1: pids(), 2: [other.pid]}).users}
            assert users["slurm job"].foreign == {}
            beside = use({0: [other.pid]}).users[0]
            # Who this test itself belongs to depends on the machine; nobody is accused whose owner is unknown.
            assert beside.foreign == ({} if beside.kind == "unknown" else {0: f"job {job}"})
        finally:
            other.kill()


def test_after_the_job_nothing_is_reserved(site: Site) -> None:
    site.all_idle()
    wait_until(lambda: {gpu.state for gpu in use({}).gpus} == {State.IDLE}, 30, "GPUs stay reserved")


class SlurmNode(Host):
    """A node of the site: this machine, whose programs of Slurm are led to the site's controller."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site

    def run(self, *argv: str, **more: Any) -> Result:
        """See Host."""
        return super().run(*argv, **{**more, "environment": self.site.environment})


def shown_job(site: Site, job: str) -> dict[str, Any]:
    answer = slurm_job.run(SlurmNode(site), {"job": job, "check": True})
    assert answer["state"] == "runs", answer
    return dict(answer["job"])


def test_a_job_is_cancelled_as_it_was_shown(site: Site, job: str) -> None:
    shown = shown_job(site, job)
    assert (shown["JobName"], shown["NodeList"], shown["UserId"]) == ("train", "h2", "root(0)")
    answer = slurm_job.run(SlurmNode(site), {"job": job, "shown": shown, "grace_s": 30})
    assert answer["state"] == "ended", answer
    wait_until(lambda: pids() == [], 20, "its process lives")


def test_a_job_that_was_queued_again_is_not_cancelled(site: Site, job: str) -> None:
    shown = shown_job(site, job)
    site.ask("scontrol", "requeue", job)
    answer = slurm_job.run(SlurmNode(site), {"job": job, "shown": shown, "grace_s": 5})
    assert answer["state"] == "changed", answer
    assert job in site.ask("squeue", "-h", "-o", "%i")


def test_a_node_is_drained_with_our_reason_and_taken_back(site: Site) -> None:
    def drain(**more: Any) -> dict[str, Any]:
        return slurm_node.run(SlurmNode(site), {"node": "h4", "text": "xid GPU 0: off the bus (1)", **more})

    site.all_idle()
    assert drain(check=True)["state"] == "due"
    assert drain(undo=True, check=True)["state"] == "done"
    answer = drain()
    assert (answer["state"], answer["slurm_state"]) == ("done", "IDLE+DRAIN"), answer
    assert answer["slurm_reason"].startswith("gpuctl: xid GPU 0: off the bus (1)")
    assert drain(undo=True)["state"] == "done"
    site.ask("scontrol", "update", "NodeName=h4", "State=DRAIN", "Reason=power supply")
    try:
        assert [drain(undo=undo)["state"] for undo in (False, True)] == ["others", "others"]
        assert "power supply" in site.ask("scontrol", "show", "node", "h4")
    finally:
        site.ask("scontrol", "update", "NodeName=h4", "State=RESUME")
