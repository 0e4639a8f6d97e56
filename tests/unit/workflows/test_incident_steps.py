"""Steps of an incident that need no host: the log, the input, and tests on a fleet in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding, Verdict, ok, unknown
from gpuctl.hosts.model import Target
from gpuctl.incident import acts
from gpuctl.incident.cause import cause
from gpuctl.incident.model import Answer, Certainty, Entry, Incident, IncidentRequest, State, Step
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run, Sweep, Transport
from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.nccl.runners.slurm.runner import SlurmRunner
from gpuctl.nodes.model import Fleet
from gpuctl.workflows import nodes
from gpuctl.workflows.incident import flow, steps
from gpuctl.workflows.incident.acts import Acts
from gpuctl.workflows.nccl_targets.model import NodeAccess
from tests.rig.nccl.simulated import CALM, net, seeded
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.runner import SimulatedFleet


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))


def read_log(path: Path, text: str) -> Answer:
    path.write_text(text)
    request = IncidentRequest("alert", log=str(path))
    return steps.Steps(request, print).read(flow.new(request), Entry(1, Step.LOG, "", ""))


def test_the_first_failure_is_named_with_its_rank_and_node(tmp_path: Path) -> None:
    answer = read_log(tmp_path / "log", "n3:812:901 [0] NCCL WARN no device\n[rank1]: Connection reset by peer\n")
    first = answer.details["first"]
    assert (first["kind"], first["node"]) == ("NCCL warning", "n3")


def test_a_log_of_consequences_alone_names_no_first_failure(tmp_path: Path) -> None:
    assert read_log(tmp_path / "log", "[rank1]: Connection reset by peer\n").details["first"] is None


def test_a_log_that_cannot_be_read_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        steps.check(IncidentRequest("alert", log=str(tmp_path / "none")))
    assert not (tmp_path / "incidents").exists()


def test_a_log_without_an_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(InvalidInput, match="no regular file"):
            steps.check(IncidentRequest("alert", log=str(path)))


def test_secrets_of_the_first_line_are_removed(tmp_path: Path) -> None:
    answer = read_log(tmp_path / "log", "RuntimeError: password=hunter2hunter2\n")
    assert "<removed>" in answer.details["first"]["text"]


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        (IncidentRequest("alert", nodes="n9"), "n9: no such host"),
        (IncidentRequest("alert", partition="gpu"), "--partition needs --slurm"),
        (IncidentRequest("alert", slurm=True, inventory="x"), "--slurm takes no --inventory"),
        (IncidentRequest("alert", limit="n9"), "n9"),
        (IncidentRequest("alert", resume_with=("/none/sbatch", "x")), "/none/sbatch is no program of this machine"),
        (IncidentRequest("alert", slurm=True, context="lab"), "--context does not go with --slurm"),
        (IncidentRequest("alert", context="gpuctl-no-such-context"), "gpuctl-no-such-context"),
    ],
)
def test_bad_input_is_refused_before_anything_is_recorded(
    tmp_path: Path, request_: IncidentRequest, wrong: str
) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {hosts: {n1: {}, n2: {}}}\n")
    given = request_ if request_.slurm else replace(request_, inventory=str(inventory))
    with pytest.raises(InvalidInput, match=wrong):
        steps.check(given)
    assert not (tmp_path / "incidents").exists()


# ---- tests on a fleet in memory --------------------------------------------------------------------------------------

IDLE = ok("idle", "", "no process")
NETWORK = net(8)


class OnFleet(steps.Steps):
    """Steps on a fleet in memory; `before`: what the checks before the next tests come to, the last one stays."""

    def __init__(self, fleet: SimulatedFleet, before: Sequence[Sequence[Finding]] = ((IDLE,),)) -> None:
        super().__init__(IncidentRequest("alert"), print)
        self.fleet, self.left = fleet, list(before)
        nodes = list(fleet.network.nodes)
        racks = dict.fromkeys(nodes, "r1")
        # The real class computes its access from an inventory.
        self.__dict__["access"] = NodeAccess(fleet, nodes, "memory", racks, before=self._next)

    def _next(self, _alone: bool) -> list[Finding]:
        return list(self.left.pop(0) if len(self.left) > 1 else self.left[0])


def simulated(*faults: Fault, closed: dict[str, str] | None = None) -> SimulatedFleet:
    return SimulatedFleet(NETWORK, CALM, seeded(1), faults, closed=closed or {})


def made(on: OnFleet, *names: Step) -> Incident:
    """Incident with these steps made."""
    incident = flow.new(on.request)
    for number, step in enumerate(names, 1):
        entry = Entry(number, step, "", "")
        incident = incident.with_entry(replace(entry, answer=on.read(incident, entry)))
    return incident


def test_the_isolation_of_a_fleet_proves_its_slow_node() -> None:
    end = made(OnFleet(simulated(Fault("slow", "node", ("node-5",), 0.5))), Step.TEST, Step.ISOLATE)
    answer = end.answer(Step.ISOLATE)
    assert answer is not None
    assert answer.details["tested"] == sorted(NETWORK.nodes)
    assert (cause(end).certainty, cause(end).nodes) == (Certainty.PROVEN, ("node-5",))


@pytest.mark.parametrize("is_repaired", [True, False])
def test_the_repeated_isolation_has_runs_of_its_own(tmp_path: Path, is_repaired: bool) -> None:
    """Runs from before a repair would accuse the node again."""
    fault = Fault("slow", "node", ("node-5",), 0.5)
    on = OnFleet(simulated(fault))
    before = made(on, Step.TEST, Step.ISOLATE)
    on.__dict__["access"] = OnFleet(simulated(*([] if is_repaired else [fault]))).access
    entry = Entry(len(before.entries) + 1, Step.RETEST, "", "")
    answer = on.read(before, entry)
    after = before.with_entry(replace(entry, answer=answer))
    assert len(list(tmp_path.glob("incidents/*.runs"))) == 2
    assert acts.passes_isolation(after, "node-5") is is_repaired


def test_tests_in_which_nothing_started_prove_nothing() -> None:
    on = OnFleet(simulated(closed=dict.fromkeys(NETWORK.nodes, "no mpirun")))
    end = made(on, Step.TEST, Step.ISOLATE)
    states = [one.answer and one.answer.state for one in end.entries]
    assert states == [State.UNKNOWN, State.UNKNOWN]
    assert cause(end).certainty is Certainty.UNKNOWN


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN])
@pytest.mark.parametrize("step", [Step.TEST, Step.ISOLATE])
def test_the_use_of_nodes_is_read_again_before_each_test(step: Step, verdict: Verdict) -> None:
    """A job may have started since the preflight."""
    on = OnFleet(simulated(), [(IDLE,), (Finding("idle", "node-2", verdict, "a job"),)])
    answer = made(on, Step.PREFLIGHT, step).answer(step)
    assert answer is not None
    assert answer.state is State.UNKNOWN
    assert "node-2: a job" in answer.summary
    assert on.fleet.rounds == []


def test_an_act_on_nodes_of_a_lost_network_stays_open_and_one_that_is_refused_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = OnFleet(simulated())
    on.__dict__["hosts"] = [Target("node-1"), Target("node-2")]
    refused = Answer(State.REFUSED, "what uses its GPUs is unknown: no route to host")
    monkeypatch.setattr(Acts, "make", lambda *_: refused)
    entry = Entry(1, Step.REPAIR, "", "")
    lost = {"node-1": "no route to host"}
    monkeypatch.setattr(nodes, "ask", lambda *_: Fleet({}, lost))
    assert on.act(flow.new(on.request), entry, lambda _: "") == refused
    lost["node-2"] = "no route to host"
    with pytest.raises(flow.NoAnswer):
        on.act(flow.new(on.request), entry, lambda _: "")


LOST = tuple(unknown("reachable", node, "no route to host") for node in NETWORK.nodes)


@pytest.mark.parametrize("step", [Step.PREFLIGHT, Step.TEST, Step.ISOLATE])
def test_a_lost_network_is_no_answer(step: Step) -> None:
    with pytest.raises(flow.NoAnswer):
        made(OnFleet(simulated(), [LOST]), step)


def test_runs_of_a_network_that_was_lost_in_them_are_no_evidence(tmp_path: Path) -> None:
    on = OnFleet(simulated(closed=dict.fromkeys(NETWORK.nodes, "no route to host")), [(IDLE,), LOST])
    with pytest.raises(flow.NoAnswer):
        made(on, Step.ISOLATE)
    assert not list(tmp_path.glob("incidents/*.runs"))


def test_runs_of_other_nodes_than_those_that_are_idle_are_not_continued() -> None:
    on = OnFleet(simulated())
    incident = made(on, Step.TEST)
    entry = Entry(2, Step.ISOLATE, "", "")
    on.read(incident, entry)
    rounds = len(on.fleet.rounds)
    on.read(incident, entry)  # has all its runs
    assert len(on.fleet.rounds) == rounds
    on.access.nodes.pop()
    on.read(incident, entry)
    assert len(on.fleet.rounds) > rounds


def test_nodes_go_back_to_slurm_after_a_test_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[str] = []
    runner = SlurmRunner(["n1"], Settings())
    monkeypatch.setattr(runner, "close", lambda: released.append("closed"))
    on = OnFleet(simulated())
    on.__dict__["access"] = NodeAccess(runner, ["n1"], "slurm", {})
    with pytest.raises(RuntimeError), on._released():
        raise RuntimeError
    assert released == ["closed"]


def used(network: str, provider: str | None) -> LaunchResult:
    run = Run(Outcome.COMPLETE, None, None, (), None, None, transports=(Transport(0, "n1", network, provider),))
    return LaunchResult(Launch(("n1", "n2"), Sweep()), run, 1.0)


def test_efa_is_known_by_what_ranks_print() -> None:
    assert steps._uses_efa([used("Socket", None), used("AWS Libfabric", "efa")])
    assert not steps._uses_efa([used("IB", None), used("AWS Libfabric", "tcp")])
