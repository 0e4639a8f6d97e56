"""Owners of processes in jobs of a real Slurm with control groups (version 1, several slurmd on one machine).

Stand-in: nvidia-smi, whose list of processes points at true pids.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import slurm_job, slurm_node
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import gpu_use
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result
from click.testing import CliRunner

from gpuctl.cli.dash.panels.nodes import NodesPanel
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.gpu_node.bootstrap import bootstrap
from gpuctl.cli.nodes import command
from gpuctl.core.errors import InvalidInput
from gpuctl.nodes.model import Node, State
from gpuctl.nodes.node_use import node as use_of
from tests.integration.nccl.slurm.site import CGROUPS, Site, missing, started
from tests.rig.gpu_user_facts import misfit
from tests.rig.gpu_user_trees import row, xml_with
from tests.rig.host import wait_until
from tests.rig.living_fleet import FleetHost, LivingFleet
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
    assert misfit(facts) == ""
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


@pytest.fixture
def client(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This process as a client of the cluster."""
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))


def install(site: Site, node: str, listing: str) -> None:
    """Give a node a stand-in for nvidia-smi that prints this; its files are its own, but for those of this machine."""
    inside = (site.plot.cgroup / node / "node/cgroup.procs").read_text().split()
    [slurmd] = [pid for pid in inside if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"slurmd\0")]
    (site.state / "listing.xml").write_text(listing)
    script = f"#!/bin/sh\nexec cat {site.state}/listing.xml\n"
    there = ["nsenter", "--mount", f"--target={slurmd}", "sh", "-ec"]
    put = "mount -t tmpfs tmpfs /usr/local/sbin; cat > /usr/local/sbin/nvidia-smi; chmod 755 /usr/local/sbin/nvidia-smi"
    subprocess.run([*there, put], input=script.encode(), check=True)


def own_numbers() -> list[int]:
    """The job's process, by its node's numbering."""
    rows = [Path(f"/proc/{pid}/status").read_text() for pid in pids()]
    return [int(line.split()[-1]) for text in rows for line in text.splitlines() if line.startswith("NSpid:")]


def shown(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(command.nodes, ["--slurm", *words, "-o", "json"])
    assert result.exit_code == 1, result.output  # by Slurm alone, or beside GPUs that are hidden
    return {node["node"]: node for node in json.loads(result.stdout)["nodes"]}


def test_slurms_records_alone_tell_the_user_job_and_gpus(client: None, job: str) -> None:
    nodes = shown("--via", "scontrol", "--nodes", "h[2-3]")
    assert list(nodes) == ["h2", "h3"]
    [user] = nodes["h2"]["users"]
    assert (user["who"], user["what"], user["gpus"], user["kind"]) == ("root", f"job {job}", [0], "slurm job")
    assert user["details"]["job_name"] == "train"
    assert (nodes["h2"]["source"], nodes["h2"]["type"], nodes["h2"]["slurm"]["state"]) == ("slurm", "h200", "mixed")
    assert nodes["h2"]["counts"] == {"used": 0, "reserved": 1, "memory_in_use": 0, "idle": 0, "unknown": 1}
    assert nodes["h3"]["counts"]["unknown"] == 2


def test_a_node_is_asked_within_ones_own_job_there(client: None, site: Site, job: str) -> None:
    whole = xml_with({0: [row(pid, "sleep") for pid in own_numbers()]})
    # The job's GPU alone: as the real one prints, where control groups hide the devices of others.
    install(site, "h2", re.sub(r"(?s)(<gpu id=.*?</gpu>).*(\s*</nvidia_smi_log>)", r"\1\2", whole))
    one = shown("--nodes", "h2")["h2"]
    assert one["source"] == "node"
    assert [gpu["state"] for gpu in one["gpus"]] == ["used", "unknown"]
    assert "hidden from the job" in one["gpus"][1]["reason"]
    [user] = one["users"]
    assert (user["what"].split(" step")[0], user["details"]["job_name"]) == (f"job {job}", "train")


def test_a_drained_node_has_its_reason(client: None, site: Site) -> None:
    site.ask("scontrol", "update", "NodeName=h1", "State=DRAIN", "Reason=GPU 3: Xid 79, ticket 5")
    try:
        result = CliRunner().invoke(command.nodes, ["--slurm", "--partition", "night"])
        text = "WARN slurm-state h1: Slurm has it drained: GPU 3: Xid 79, ticket 5 (root, "
        assert text in " ".join(result.output.split())
    finally:
        site.ask("scontrol", "update", "NodeName=h1", "State=RESUME")


def test_the_panel_of_dash_has_the_lines_of_the_command(client: None, job: str) -> None:
    request = DashRequest("nodes", None, "", "", (), 5, 60, "", "", Path("/no/socket"), slurm=True, via="scontrol")
    panel = NodesPanel(request)
    panel.read()
    lines = [line.text.strip() for line in panel.view().lines]
    printed = CliRunner().invoke(command.nodes, panel.command.split()[2:]).output
    assert [line for line in lines if f"job {job}" in line or line.startswith("h2")]
    assert {line for line in lines if line.startswith("h")} <= {line.strip() for line in printed.splitlines()}


@pytest.mark.parametrize("words", [["--partition", "none"], ["--nodes", "h[8-9]"]])
def test_nodes_that_slurm_does_not_have_are_refused(client: None, words: list[str]) -> None:
    result = CliRunner().invoke(command.nodes, ["--slurm", *words])
    assert isinstance(result.exception, InvalidInput)


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
    assert drain(undo=True, ours="bootstrap gpu-node")["state"] == "others"
    assert drain(undo=True)["state"] == "done"
    site.ask("scontrol", "update", "NodeName=h4", "State=DRAIN", "Reason=power supply")
    try:
        assert [drain(undo=undo)["state"] for undo in (False, True)] == ["others", "others"]
        assert "power supply" in site.ask("scontrol", "show", "node", "h4")
    finally:
        site.ask("scontrol", "update", "NodeName=h4", "State=RESUME")


class RolledNode(SlurmNode):
    """A node of the site by its name; see `StandinSlurmNode` in tests/rig/living_fleet.py, whose place it takes."""

    def __init__(self, site: Site, name: str) -> None:
        super().__init__(site)
        self.name, self.state, self.reason, self.jobs = name, "", "", 0
        self.updates: list[str] = []

    def value(self, path: str) -> str | None:
        """See Host."""
        return self.name if path.endswith("/hostname") else super().value(path)

    def run(self, *argv: str, **more: Any) -> Result:
        """See Host."""
        self.updates += [" ".join(argv[3:])] if "update" in argv else []
        return super().run(*argv, **more)


def test_a_roll_out_waits_for_a_job_and_takes_its_node_back(
    client: None, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.all_idle()
    script = site.state / "short.sh"
    script.write_text("#!/bin/sh\nexec sleep 4\n")
    number = site.ask("sbatch", "--parsable", "--nodelist=h3", "--output=/dev/null", str(script)).strip()
    wait_until(lambda: site.states()["h3"] != "idle", 30, "the job does not start")
    site.ask("scontrol", "update", "NodeName=h4", "State=DRAIN", "Reason=power supply")
    fleet = LivingFleet(**{name: FleetHost(slurm=RolledNode(site, name)) for name in ("h3", "h4")})
    fleet.connect(monkeypatch)
    monkeypatch.setattr("gpuctl.workflows.nodes_empty.POLL_S", 0.2)
    try:
        words = ["-i", "prod", "--yes", "-o", "json", "--drain", "slurm", "--reboot"]
        result = CliRunner().invoke(bootstrap, words)
        rows = {row["host"]: (row["status"], row["drain"]) for row in json.loads(result.stdout)["hosts"]}
        assert rows == {"h3": ("done", "undrained"), "h4": ("done", "others")}, result.stderr
        assert fleet.acts == {"h3": ["drain", "install", "reboot", "undrain"], "h4": ["install", "reboot"]}
        assert "h3 waits: jobs run there: Slurm has it" in result.stderr
        assert "JobState=COMPLETED" in site.ask("scontrol", "show", "job", number)
        # Until its slurmd answers again, slurmctld shows a star.
        assert [site.states()[name].rstrip("*") for name in ("h3", "h4")] == ["idle", "drained"]
        assert "power supply" in site.ask("scontrol", "show", "node", "h4")
    finally:
        site.ask("scontrol", "update", "NodeName=h4", "State=RESUME")
