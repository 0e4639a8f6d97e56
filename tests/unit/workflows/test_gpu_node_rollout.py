"""Roll-outs over a living fleet: batches, verification, reboots, and where they stop."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.gpu_node.bootstrap import bootstrap
from gpuctl.core import run_history
from gpuctl.core.errors import InvalidInput, Unreachable
from gpuctl.hosts.model import HostResult
from gpuctl.workflows import gpu_node_rollout
from gpuctl.workflows.nodes_drain import Drain
from tests.rig.living_fleet import NEW, OLD, FleetHost, LivingFleet, StandinSlurmNode
from tests.rig.standin_nodes import StandinCluster

JOB = ("1 processes on GPUs: 77, python",)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))


def roll(fleet: LivingFleet, patch: pytest.MonkeyPatch, *words: str) -> Result:
    fleet.connect(patch)
    return CliRunner().invoke(bootstrap, ["-i", "prod", "--yes", "-o", "json", *words])


def rows(result: Result) -> dict[str, dict[str, Any]]:
    document = json.loads(result.stdout)
    assert document["exit_code"] == result.exit_code
    return {row["host"]: row for row in document["hosts"]}


def states(result: Result) -> dict[str, str]:
    return {name: row["status"] for name, row in rows(result).items()}


def test_after_a_batch_with_a_host_that_does_not_verify_the_others_are_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = LivingFleet(**{f"n{number}": FleetHost(loads=True, misses=number == 2) for number in range(1, 6)})
    result = roll(fleet, monkeypatch, "--batch", "2", "--max-fail", "0")
    assert states(result) == {
        "n1": "done",
        "n2": "failed",
        **dict.fromkeys(("n3", "n4", "n5"), "not started"),
    }
    assert rows(result)["n2"]["step"] == "verify"
    assert "gpus: nvidia-smi lists 0 of 1 GPUs" in rows(result)["n2"]["error"]["wrong"]
    assert rows(result)["n3"]["error"]["wrong"] == "1 of 2 hosts of batch 1 failed (n2), more than 0%"
    assert fleet.acts["n3"] == []
    assert result.exit_code == 3
    [name] = run_history.names()
    record = run_history.load(name)
    assert (record.exit_code, record.hosts["n2"]["status"], record.hosts["n5"]["batch"]) == (3, "failed", 3)

    tolerant = roll(fleet, monkeypatch, "--batch", "40%", "--max-fail", "50%")
    assert states(tolerant) == {"n1": "up to date", "n2": "up to date", **dict.fromkeys(("n3", "n4", "n5"), "done")}


def test_a_share_of_a_batch_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(fails="disk full"), b=FleetHost(loads=True), c=FleetHost(loads=True))
    result = roll(fleet, monkeypatch, "--batch", "2", "--max-fail", "50%")
    assert states(result) == {"a": "failed", "b": "done", "c": "done"}
    assert rows(result)["a"]["step"] == "install"
    assert "disk full" in rows(result)["a"]["error"]["wrong"]
    assert result.exit_code == 1


def test_only_hosts_whose_running_module_differs_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"a": FleetHost(), "b": FleetHost(loads=True), "c": FleetHost(packages=NEW), "d": FleetHost(NEW, NEW)}
    fleet = LivingFleet(**hosts)
    result = roll(fleet, monkeypatch, "--reboot")
    assert fleet.acts == {"a": ["install", "reboot"], "b": ["install"], "c": ["reboot"], "d": []}
    assert states(result) == {"a": "done", "b": "done", "c": "done", "d": "up to date"}
    assert [row["batch"] for row in rows(result).values()] == [1, 2, 3, None]
    assert [row["rebooted"] for row in rows(result).values()] == [True, False, True, False]
    assert [line for line in result.stderr.splitlines() if line.startswith("reboot")] == ["reboot a", "reboot c"]
    assert result.exit_code == 0


def test_what_waited_for_the_driver_is_installed_after_the_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(running=""), b=FleetHost(NEW, NEW))
    fleet.request = replace(fleet.request, nccl_tests="2.17.6")
    result = roll(fleet, monkeypatch, "--reboot")
    assert fleet.acts == {"a": ["install", "reboot", "build"], "b": ["build"]}
    assert states(result) == {"a": "done", "b": "done"}, result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("complete")] == ["complete a"]
    assert states(roll(fleet, monkeypatch, "--reboot")) == {"a": "up to date", "b": "up to date"}


def test_without_reboot_a_host_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(), b=FleetHost(loads=True))
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert states(result) == {"a": "waits for a reboot", "b": "done"}
    assert fleet.acts == {"a": ["install"], "b": ["install"]}


def test_a_host_that_does_not_come_back_stops_the_roll_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(returns=False), b=FleetHost())
    result = roll(fleet, monkeypatch, "--reboot", "--reboot-limit", "0.001s")
    assert states(result) == {"a": "failed", "b": "not started"}
    assert "did not come back" in rows(result)["a"]["error"]["wrong"]
    assert fleet.acts["b"] == []


def test_a_job_that_began_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FleetHost()
    fleet = LivingFleet(a=host)
    installs = host.install

    def install() -> Any:
        host.busy = JOB
        return installs()

    monkeypatch.setattr(host, "install", install)
    result = roll(fleet, monkeypatch, "--reboot")
    assert rows(result)["a"]["error"]["wrong"] == f"not rebooted: {JOB[0]}"
    assert host.acts == ["install"]


def test_hosts_that_are_refused_or_not_reached_are_in_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(busy=JOB), b=FleetHost(reached=False), c=FleetHost(loads=True))
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert states(result) == {"a": "refused", "b": "not reached", "c": "done"}
    assert fleet.acts == {"a": [], "b": [], "c": ["install"]}
    assert result.exit_code == 3


def test_what_an_interrupted_dpkg_left_is_repaired_in_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(fails="disk full"), b=FleetHost(interrupted=("nvidia-dkms-580-open",), loads=True))
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert (states(result)["b"], fleet.acts["b"]) == ("not started", [])
    fleet.hosts["a"] = FleetHost(NEW, NEW)
    again = roll(fleet, monkeypatch, "--batch", "1")
    assert states(again) == {"a": "up to date", "b": "done"}
    assert fleet.acts["b"] == ["repair", "install"]
    assert again.stderr.count("b: dpkg or rpm had been interrupted, and has completed nvidia-dkms-580-open") == 1


def test_an_interrupted_upgrade_whose_nvidia_smi_fails_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(NEW, OLD, interrupted=("nvidia-dkms-580-open",)), b=FleetHost(NEW, OLD))
    result = roll(fleet, monkeypatch, "--drain", "slurm", "--reboot")
    assert states(result) == {"a": "done", "b": "done"}
    assert fleet.hosts["a"].running == NEW


def test_holds_and_files_are_completed_where_the_packages_are_the_desired_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    drained = StandinSlurmNode("IDLE+DRAIN", OURS)
    left = FleetHost(NEW, NEW, unheld=True, slurm=drained)
    fleet = LivingFleet(a=FleetHost(NEW, NEW, unheld=True), b=FleetHost(NEW, NEW), c=left)
    result = roll(fleet, monkeypatch, "--drain", "slurm")
    assert states(result) == {"a": "done", "b": "up to date", "c": "done"}
    assert fleet.acts == {"a": ["drain", "install", "undrain"], "b": [], "c": ["install", "undrain"]}
    assert not any(host.unheld for host in fleet.hosts.values())


def test_a_host_that_cannot_be_compared_is_not_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FleetHost(NEW, NEW)
    fleet = LivingFleet(a=host, b=FleetHost(NEW, NEW))
    monkeypatch.setattr(host, "compare", lambda: HostResult("", wrong="no route to host", unreachable=True))
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert states(result) == {"a": "not reached", "b": "up to date"}
    assert result.exit_code == 3


def test_after_ctrl_c_the_same_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(**{name: FleetHost(loads=True) for name in "abc"})
    host = fleet.hosts["b"]

    def interrupted() -> Any:
        host.acts.append("install")
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "install", interrupted)
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert "the same command goes on from here" in result.stderr
    [name] = run_history.names()
    record = run_history.load(name)
    assert (record.exit_code, {name: row["status"] for name, row in record.hosts.items()}) == (
        130,
        {"a": "done", "b": "unfinished", "c": "not started"},
    )
    fleet.hosts["b"] = FleetHost(loads=True)
    again = roll(fleet, monkeypatch, "--batch", "1")
    assert states(again) == {"a": "up to date", "b": "done", "c": "done"}


def test_the_machine_that_gpuctl_runs_on_is_not_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost())
    fleet.local = True
    result = roll(fleet, monkeypatch, "--reboot")
    assert (states(result), fleet.acts["a"]) == ({"a": "refused"}, [])
    assert "gpuctl runs on it" in rows(result)["a"]["error"]["wrong"]


def test_a_cluster_that_is_lost_in_the_middle_leaves_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(loads=True), b=FleetHost(loads=True))

    def lost() -> Any:
        raise Unreachable("list pods", "no answer")

    monkeypatch.setattr(fleet.hosts["b"], "install", lost)
    result = roll(fleet, monkeypatch, "--batch", "1")
    assert isinstance(result.exception, Unreachable)
    assert "a: done\nb: unfinished\n" in result.stderr
    assert "the same command goes on from here" in result.stderr


def test_without_a_terminal_it_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    LivingFleet(a=FleetHost()).connect(monkeypatch)
    result = CliRunner().invoke(bootstrap, ["-i", "prod", "--batch", "1"])
    assert isinstance(result.exception, InvalidInput)


OURS, THEIRS = "gpuctl: bootstrap gpu-node: driver 580.178.04 (20261127-1)", "power supply"


def test_in_slurm_hosts_are_drained_emptied_changed_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(slurm=StandinSlurmNode(jobs=6)), b=FleetHost())
    slurm = fleet.hosts["a"].slurm
    result = roll(fleet, monkeypatch, "--drain", "slurm", "--reboot")
    assert states(result) == {"a": "done", "b": "done"}
    assert list(fleet.acts.values()) == [["drain", "install", "reboot", "undrain"]] * 2
    [name] = run_history.names()
    reason = f"gpuctl: bootstrap gpu-node: driver {NEW} ({name})"
    assert slurm.updates == [f"State=DRAIN Reason={reason}", "State=RESUME"]
    assert (slurm.state, slurm.reason) == ("IDLE", "")
    assert "a waits: jobs run there: Slurm has it MIXED+DRAIN" in result.stderr


def test_a_host_that_fails_stays_drained_and_the_next_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(), b=FleetHost(misses=True), c=FleetHost())
    words = ("--drain", "slurm", "--reboot", "--max-fail", "0%")
    result = roll(fleet, monkeypatch, *words)
    assert states(result) == {"a": "done", "b": "failed", "c": "not started"}
    assert {name: row["drain"] for name, row in rows(result).items()} == {"a": "undrained", "b": "drained", "c": None}
    assert [host.slurm.state for host in fleet.hosts.values()] == ["IDLE", "IDLE+DRAIN", "IDLE"]

    fleet.hosts["b"].misses = False
    again = roll(fleet, monkeypatch, *words)
    assert states(again) == {"a": "up to date", "b": "done", "c": "done"}
    assert [row["batch"] for row in rows(again).values()] == [None, 1, 2]
    assert fleet.acts["b"] == ["drain", "install", "reboot", "undrain"]


@pytest.mark.parametrize("reason", [THEIRS, "gpuctl: xid 79 (20261127-1)"])
def test_a_drain_of_somebody_else_or_of_an_audit_stays(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(slurm=StandinSlurmNode("IDLE+DRAIN", reason)))
    result = roll(fleet, monkeypatch, "--drain", "slurm", "--reboot")
    assert states(result) == {"a": "done"}
    assert rows(result)["a"]["drain"] == "others"
    assert (fleet.acts["a"], fleet.hosts["a"].slurm.reason) == (["install", "reboot"], reason)


def test_jobs_that_do_not_end_keep_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(slurm=StandinSlurmNode(jobs=10**9)), b=FleetHost())
    result = roll(fleet, monkeypatch, "--drain", "slurm", "--reboot", "--drain-limit", "0.01s")
    assert states(result) == {"a": "failed", "b": "not started"}
    assert rows(result)["a"]["step"] == "empty"
    assert rows(result)["a"]["error"]["wrong"] == "after 0.01 s: jobs run there: Slurm has it MIXED+DRAIN"
    assert fleet.acts["a"] == ["drain"]


def test_a_host_left_drained_after_its_change_is_only_verified_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = StandinSlurmNode("IDLE+DRAIN", OURS)
    fleet = LivingFleet(a=FleetHost(NEW, NEW, slurm=slurm), b=FleetHost(NEW, NEW))
    result = roll(fleet, monkeypatch, "--drain", "slurm")
    assert states(result) == {"a": "done", "b": "up to date"}
    assert fleet.acts == {"a": ["undrain"], "b": []}


def test_a_host_that_would_be_drained_without_the_reboot_it_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(), b=FleetHost(NEW, NEW, unheld=True))
    result = roll(fleet, monkeypatch, "--drain", "slurm")
    assert states(result) == {"a": "refused", "b": "done"}
    assert rows(result)["a"]["error"]["wrong"] == (
        f"it needs a reboot (the running module is {OLD}), and --reboot is not set"
    )
    assert fleet.acts["a"] == []


def test_a_host_in_use_that_needs_only_a_reboot_is_refused_without_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(NEW, OLD, busy=JOB), b=FleetHost(NEW, OLD))
    result = roll(fleet, monkeypatch, "--reboot")
    assert states(result) == {"a": "refused", "b": "done"}
    assert JOB[0] in rows(result)["a"]["error"]["wrong"]
    assert fleet.acts == {"a": [], "b": ["reboot"]}


def test_a_host_whose_need_of_a_reboot_is_unknown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FleetHost()
    facts = host.facts
    monkeypatch.setattr(host, "facts", lambda: replace(facts(), running_module=None))
    result = roll(LivingFleet(a=host), monkeypatch, "--reboot")
    assert states(result) == {"a": "refused"}
    assert host.acts == []


def test_a_drained_host_that_needs_a_reboot_is_not_taken_back_without(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(running=""), b=FleetHost(running=""))
    result = roll(fleet, monkeypatch, "--drain", "slurm")
    assert states(result) == {"a": "failed", "b": "not started"}
    assert "--reboot is not set" in rows(result)["a"]["error"]["wrong"]
    assert rows(result)["a"]["drain"] == "drained"


def test_after_ctrl_c_a_drained_host_is_finished_by_the_same_command(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(loads=True), b=FleetHost(loads=True))
    host = fleet.hosts["a"]
    install = host.install
    monkeypatch.setattr(host, "install", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    roll(fleet, monkeypatch, "--drain", "slurm", "--reboot")
    assert (host.acts, host.slurm.state) == (["drain"], "IDLE+DRAIN")
    monkeypatch.setattr(host, "install", install)
    assert states(roll(fleet, monkeypatch, "--drain", "slurm", "--reboot")) == {"a": "done", "b": "done"}
    assert list(fleet.acts.values()) == [["drain", "install", "undrain"]] * 2


def test_with_deep_a_host_takes_jobs_again_only_after_dcgms_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(), b=FleetHost(ill=True))
    result = roll(fleet, monkeypatch, "--drain", "slurm", "--reboot", "--deep", "1")
    assert states(result) == {"a": "done", "b": "failed"}
    assert fleet.acts["a"] == ["drain", "install", "reboot", "diagnose 1", "undrain"]
    assert fleet.acts["b"] == ["drain", "install", "reboot", "diagnose 1"]
    assert (rows(result)["b"]["step"], rows(result)["b"]["drain"]) == ("diagnose", "drained")
    assert "dcgm: " in rows(result)["b"]["error"]["wrong"]
    assert fleet.hosts["b"].slurm.state == "IDLE+DRAIN"


def test_a_host_in_use_is_not_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(loads=True, slurm=StandinSlurmNode("ALLOCATED")))
    result = roll(fleet, monkeypatch, "--deep", "2")
    assert (states(result), fleet.acts["a"]) == ({"a": "failed"}, ["install"])
    assert "it is in use" in rows(result)["a"]["error"]["wrong"]


def killed_at(step: int, fleet: LivingFleet, patch: pytest.MonkeyPatch, left: Path, *words: str) -> LivingFleet | None:
    """The fleet after gpuctl was killed, as by SIGKILL, before its nth question; None if it ended first."""
    pid = os.fork()
    if not pid:
        answered, answer = 0, fleet._result

        def dying(name: str, request: Mapping[str, Any]) -> HostResult:
            nonlocal answered
            answered += 1
            if answered == step:
                left.write_bytes(pickle.dumps(fleet.hosts))
                os._exit(0)
            return answer(name, request)

        try:
            patch.setattr(fleet, "_result", dying)
            roll(fleet, patch, *words)
        finally:
            os._exit(1)  # also after an error: the child must not go on as a second pytest
    _, status = os.waitpid(pid, 0)
    return None if os.waitstatus_to_exitcode(status) else LivingFleet(**pickle.loads(left.read_bytes()))  # noqa: S301 - ours


def test_killed_at_any_moment_the_same_command_ends_well_and_does_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--batch", "2", "--max-fail", "0", "--drain", "slurm", "--reboot")
    names = [f"n{number}" for number in range(1, 9)]
    killed = 0
    for step in itertools.count(1, 7):
        fleet = killed_at(
            step, LivingFleet(**{name: FleetHost() for name in names}), monkeypatch, tmp_path / "left", *words
        )
        if fleet is None:
            break
        killed += 1
        again = roll(fleet, monkeypatch, *words)
        assert again.exit_code == 0, (step, again.output)
        assert set(states(again).values()) <= {"done", "up to date"}
        assert list(fleet.acts.values()) == [["drain", "install", "reboot", "undrain"]] * 8, step
        assert {(host.running, host.slurm.state) for host in fleet.hosts.values()} == {(NEW, "IDLE")}
    assert killed > 15


@pytest.mark.parametrize(
    "words", [("--drain", "kubernetes"), ("--drain", "slurm", "--bare-pods"), ("--context", "prod")]
)
def test_options_that_do_not_fit_are_refused_before_a_host_is_read(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuctl.workflows.gpu_node_plan.run_on_all", lambda *_, **__: pytest.fail("a host was read"))
    result = CliRunner().invoke(bootstrap, ["-i", "prod", "--yes", *words])
    assert isinstance(result.exception, InvalidInput)


CHANGED = "it was changed since it was shown; run this again"


class StandinNodes:
    """Stand-in for the nodes of a cluster, whose kubelets change them `conflicts` times before each change of ours."""

    cluster = None

    def __init__(self, conflicts: int) -> None:
        self.conflicts, self.left, self.cordoned = conflicts, conflicts, False
        self.changes: list[bool] = []

    def read(self, texts: dict[str, str], *, undo: bool) -> list[Drain]:
        state = "due" if self.cordoned is undo else "done"
        return [Drain(node, "Kubernetes", state, text, slurm_state="IDLE") for node, text in texts.items()]

    def change(self, drains: Sequence[Drain], run: str, *, undo: bool) -> list[Drain]:
        if self.left and drains:
            self.left -= 1
            return [replace(one, state="failed", text=CHANGED) for one in drains]
        self.left, self.cordoned = self.conflicts, not undo
        self.changes += [undo] * len(drains)
        return [replace(one, state="done") for one in drains]


@pytest.mark.parametrize(("conflicts", "state", "changes"), [(3, "done", [False, True]), (100, "failed", [])])
def test_a_node_that_its_kubelet_changes_meanwhile_is_read_again(
    conflicts: int, state: str, changes: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = StandinNodes(conflicts)
    monkeypatch.setattr(gpu_node_rollout, "Nodes", lambda *_, **__: nodes)
    fleet = LivingFleet(a=FleetHost(loads=True))
    result = roll(fleet, monkeypatch, *KUBE)
    assert (states(result), nodes.changes) == ({"a": state}, changes)
    if state == "failed":
        assert (rows(result)["a"]["step"], rows(result)["a"]["error"]["wrong"]) == ("drain", CHANGED)
        assert fleet.acts["a"] == []


KUBE = ("--drain", "kubernetes", "--context", "prod-eu", "--reboot")


def in_cluster(patch: pytest.MonkeyPatch, **boots: str) -> StandinCluster:
    cluster = StandinCluster(boots)
    patch.setattr("gpuctl.edges.kube.cluster.connect", lambda _: cluster)
    return cluster


def test_a_node_of_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = in_cluster(monkeypatch, a="boot-of-another", b="boot-1")
    fleet = LivingFleet(a=FleetHost(), b=FleetHost())
    result = roll(fleet, monkeypatch, *KUBE)
    assert states(result) == {"a": "refused", "b": "done"}
    assert "is it another cluster" in rows(result)["a"]["error"]["wrong"]
    assert (fleet.acts["a"], cluster.nodes["a"]["spec"]) == ([], {})
    assert rows(result)["b"]["drain"] == "undrained"
    assert "unschedulable" not in cluster.nodes["b"]["spec"]


def test_a_host_does_not_reboot_once_its_drain_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = in_cluster(monkeypatch, a="boot-1", b="boot-1")
    fleet = LivingFleet(a=FleetHost(), b=FleetHost())
    install = fleet.hosts["a"].install

    def uncordoned() -> HostResult:
        cluster.patch("a", {"spec": {"unschedulable": None}}, "kubectl-uncordon")
        return install()

    monkeypatch.setattr(fleet.hosts["a"], "install", uncordoned)
    result = roll(fleet, monkeypatch, *KUBE)
    assert states(result) == {"a": "failed", "b": "not started"}
    assert rows(result)["a"]["error"]["wrong"] == "not rebooted: somebody has taken back its drain meanwhile"
    assert fleet.acts["a"] == ["install"]


def test_an_error_of_the_cluster_fails_the_hosts_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = in_cluster(monkeypatch, a="boot-1", b="boot-1")
    fleet = LivingFleet(a=FleetHost(), b=FleetHost())
    install, find = fleet.hosts["a"].install, cluster.find

    def lost(*_: Any) -> Any:
        monkeypatch.setattr(cluster, "find", find)
        raise Unreachable("list nodes", "no answer")

    def installs() -> HostResult:
        monkeypatch.setattr(cluster, "find", lost)
        return install()

    monkeypatch.setattr(fleet.hosts["a"], "install", installs)
    result = roll(fleet, monkeypatch, *KUBE, "--max-fail", "100%")
    assert states(result) == {"a": "failed", "b": "done"}
    assert "list nodes: no answer" in rows(result)["a"]["error"]["wrong"]


def test_a_host_without_its_module_does_not_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(unbuilt=True), b=FleetHost())
    result = roll(fleet, monkeypatch, "--drain", "slurm", "--reboot")
    assert states(result) == {"a": "failed", "b": "not started"}
    kernel = fleet.hosts["a"].facts().kernel
    assert rows(result)["a"]["error"]["wrong"] == f"module {NEW} is not installed for kernel {kernel}"
    assert fleet.acts["a"] == ["drain", "install"]


def test_jobs_that_began_on_a_drained_host_keep_it_from_its_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost())
    host = fleet.hosts["a"]
    install = host.install

    def installs() -> HostResult:
        host.slurm.state = "IDLE"
        return install()

    monkeypatch.setattr(host, "install", installs)
    result = roll(fleet, monkeypatch, "--drain", "slurm", "--reboot")
    assert rows(result)["a"]["error"]["wrong"] == "not rebooted: somebody has taken back its drain meanwhile"
    assert "reboot" not in fleet.acts["a"]


def test_the_table_has_the_batches_the_states_and_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = LivingFleet(a=FleetHost(misses=True, loads=True), b=FleetHost(loads=True), c=FleetHost(NEW, NEW))
    fleet.connect(monkeypatch)
    result = CliRunner().invoke(bootstrap, ["-i", "prod", "--yes", "--drain", "slurm", "--reboot"])
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "batch 1 of 2: a" in lines
    table = lines[lines.index("HOST BATCH STATE NOTE") + 1 :]
    assert table[0].startswith("a 1 failed verify: gpus: nvidia-smi lists 0 of 1 GPUs")
    assert table[0].endswith("it stays drained")
    assert table[1:3] == ["b 2 not started 1 of 1 hosts of batch 1 failed (a), more than 0%", "c - up to date"]
    [name] = run_history.names()
    assert table[-1] == f"run {name}; `gpuctl runs show {name}` has the details"
