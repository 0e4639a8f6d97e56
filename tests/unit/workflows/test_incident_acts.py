"""Acts of an incident by the functions of `gpuctl nodes` on stand-in hosts: consent, refusals, interruptions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError
from gpuctl.edges import slurm
from gpuctl.edges.processes import Done
from gpuctl.hosts.model import HostResult, Target
from gpuctl.incident import acts as rules
from gpuctl.incident.model import Answer, Entry, Incident, State, Step
from gpuctl.nodes import node_use
from gpuctl.workflows import audit, audit_rules, host_reboot, nodes_drain, nodes_service
from gpuctl.workflows.incident import acts, flow
from gpuctl.workflows.incident.acts import Acts, Question
from gpuctl.workflows.nodes_service import Deed
from tests.rig import incident_stories as stories
from tests.rig.gpu_user_facts import facts, process

HOSTS = [Target(name) for name in stories.NODES]
Visit = Callable[[Mapping[str, Any]], HostResult]


@pytest.fixture(autouse=True)
def records_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """Requests that change a node; a node is idle, and its acts succeed."""
    sent: list[Mapping[str, Any]] = []
    drained: list[str] = []

    def visit(hosts: Sequence[Target], request_of: Callable[[Target], Mapping[str, Any]], **_: Any) -> list[HostResult]:
        [host] = hosts
        request = request_of(host)
        if not request["check"]:
            sent.append(request)
        if request["act"] == "slurm drain":
            return [HostResult(host.name, {"act": _slurm(request, drained)})]
        return [HostResult(host.name, {"act": {"state": "due" if request["check"] else "done", "reason": ""}})]

    monkeypatch.setattr(nodes_drain, "run_on_all", visit)
    monkeypatch.setattr(nodes_service, "run_on_all", visit)
    monkeypatch.setattr(
        nodes_service, "restart", lambda host, *_: Deed(host, "restart efa", "jobs break", (), {"act": "x"})
    )
    return sent


def _slurm(request: Mapping[str, Any], drained: list[str]) -> dict[str, Any]:
    is_ours = bool(drained) and drained[-1].startswith(request["ours"])
    due = is_ours if request["undo"] else not drained
    if due and not request["check"]:
        drained[:] = [] if request["undo"] else [request["text"]]
    now = "due" if due and request["check"] else "done" if due or is_ours or not drained else "others"
    return {"state": now, "slurm_state": "IDLE+DRAIN" if drained else "IDLE", "slurm_reason": "", "reason": ""}


def incident(answers: Mapping[Step, Answer] = stories.EFA, **more: Any) -> Incident:
    """An incident up to its audit; without answers, its isolation proves that the network of n3 is bad."""
    entries = tuple(Entry(number, step, "", "", answer=answers[step]) for number, step in enumerate(stories.READ, 1))
    return replace(flow.new(replace(stories.REQUEST, **more)), entries=entries)


def yes(_: Question) -> str:
    return ""


def no(_: Question) -> str:
    return "not done: declined"


def made(one: Incident, step: Step, ask: acts.Ask = yes) -> Answer:
    entry = Entry(len(one.entries) + 1, step, rules.command(one, step), "")
    return Acts(HOSTS, ask).make(one, entry)


def test_nothing_is_sent_without_consent(requests: list[Mapping[str, Any]]) -> None:
    for step in (Step.DRAIN, Step.REPAIR):
        assert made(incident(), step, no).state is State.DECLINED
    assert (requests, run_history.names()) == ([], [])


def test_a_repair_is_the_one_of_nodes_with_its_run_record(requests: list[Mapping[str, Any]]) -> None:
    one = incident()
    answer = made(one, Step.REPAIR)
    assert (answer.state, answer.details["begun"]) == (State.DONE, True)
    run = run_history.load(answer.details["run"])
    assert (run.command, run.exit_code) == (["nodes", "restart", "n3", "efa", "--inventory", "/inv.yml"], 0)
    assert run.hosts["n3"]["reason"] == f"incident {one.name}, step 7"
    assert len(requests) == 1


@pytest.mark.usefixtures("requests")
def test_a_node_in_use_is_refused_also_with_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Deed(HOSTS[2], "restart efa", "jobs break", ("GPU 0: alice works there",))
    monkeypatch.setattr(nodes_service, "restart", lambda *_: busy)
    answer = made(incident(), Step.REPAIR)
    assert (answer.state, answer.summary) == (State.REFUSED, "GPU 0: alice works there")
    assert run_history.names() == []


@pytest.mark.parametrize(
    ("status", "state"), [("unfinished", State.UNKNOWN), ("done", State.DONE), ("failed", State.FAILED)]
)
def test_a_repair_that_was_begun_before_an_interruption_is_not_repeated(
    status: str, state: State, requests: list[Mapping[str, Any]]
) -> None:
    one = incident()
    run = run_history.new(["nodes", "restart"])
    row = {"host": "n3", "status": status, "act": "restart efa", "reason": f"incident {one.name}, step 7"}
    run_history.save(replace(run, hosts={"n3": row}))
    entry = Entry(7, Step.REPAIR, rules.command(one, Step.REPAIR), "", begun=run.name)
    answer = Acts(HOSTS, yes).make(one, entry)
    assert (answer.state, answer.details["begun"], answer.details["run"]) == (state, True, run.name)
    assert requests == []


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("{")])
def test_an_act_that_was_begun_is_not_repeated_without_its_run_record(
    damage: Callable[[Path], object], requests: list[Mapping[str, Any]]
) -> None:
    one, begun = incident(resume_with=("touch", "/none/x")), list[str]()
    for step in (Step.REPAIR, Step.RESUME):
        entry = Entry(7, step, rules.command(one, step), "")
        Acts(HOSTS, yes, begun.append).make(one, entry)
        damage(run_history.folder() / f"{begun[-1]}.json")
        answer = Acts(HOSTS, yes, begun.append).make(one, replace(entry, begun=begun[-1]))
        assert (answer.state, answer.details) == (State.UNKNOWN, {"begun": True, "run": begun[-1]})
    assert (len(requests), len(begun)) == (1, 2)


def test_nothing_is_done_if_its_beginning_cannot_be_recorded(requests: list[Mapping[str, Any]]) -> None:
    def full(_: str) -> None:
        raise GpuctlError("record the incident", "no space left on device")

    one = incident()
    for step in (Step.DRAIN, Step.REPAIR):
        with pytest.raises(GpuctlError, match="no space left"):
            Acts(HOSTS, yes, full).make(one, Entry(7, step, rules.command(one, step), ""))
    assert requests == []


def test_a_drain_that_was_begun_before_an_interruption_counts_as_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    drains(("lost", ""), monkeypatch=monkeypatch)
    one = incident()
    answer = Acts(HOSTS, yes).make(one, Entry(7, Step.DRAIN, rules.command(one, Step.DRAIN), "", begun="r1"))
    assert (answer.state, answer.details["begun"]) == (State.UNKNOWN, True)


def test_a_drain_is_ours_and_given_back_and_one_of_others_stays(requests: list[Mapping[str, Any]]) -> None:
    one = incident()
    for _ in range(2):  # the second after a kill before its answer was recorded
        answer = made(one, Step.DRAIN)
        assert (answer.state, answer.details["drained_by"]) == (State.DONE, rules.OURS)
    assert [request["text"][: len(one.name) + 10] for request in requests] == [f"incident {one.name}:"]
    assert made(replace(one, name="20200101-000000-1"), Step.GIVE_BACK).state is State.REFUSED
    other = made(replace(one, name="20200101-000000-1"), Step.DRAIN)
    assert (other.state, other.details["drained_by"]) == (State.DONE, rules.OTHERS)
    assert made(one, Step.GIVE_BACK).state is State.DONE
    assert len(requests) == 2


def test_the_drain_of_an_incident_whose_name_only_begins_so_is_not_ours(requests: list[Mapping[str, Any]]) -> None:
    one = incident()
    made(replace(one, name=f"{one.name}2"), Step.DRAIN)
    assert made(one, Step.DRAIN).details["drained_by"] == rules.OTHERS
    assert made(one, Step.GIVE_BACK).state is State.REFUSED
    assert len(requests) == 1


def drains(*states: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """State of the drain and of the node in Slurm, one after the other; without an answer "lost"."""
    rows = iter(states)

    def visit(hosts: Sequence[Target], *_: Any, **__: Any) -> list[HostResult]:
        state, of_slurm = next(rows)
        if state == "lost":
            return [HostResult(hosts[0].name, None, "the connection was lost")]
        answer = {"state": state, "slurm_state": of_slurm, "slurm_reason": "", "reason": ""}
        return [HostResult(hosts[0].name, {"act": answer})]

    monkeypatch.setattr(nodes_drain, "run_on_all", visit)


@pytest.mark.parametrize(
    ("read_back", "state", "by"),
    [
        (("lost", ""), State.UNKNOWN, ""),
        (("due", "IDLE"), State.UNKNOWN, ""),
        (("done", "IDLE+DRAIN"), State.DONE, rules.OURS),
    ],
)
def test_a_drain_of_unknown_end_is_read_back_and_never_counts_as_nothing(
    read_back: tuple[str, str], state: State, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drains(("due", "IDLE"), ("lost", ""), read_back, monkeypatch=monkeypatch)
    answer = made(incident(), Step.DRAIN)
    assert (answer.state, answer.details["drained_by"], answer.details["begun"]) == (state, by, True)
    assert answer.details["run"] == run_history.names()[0]


@pytest.mark.parametrize("state", ["others", "done"])
def test_a_node_that_is_down_is_not_drained(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drains((state, "DOWN"), monkeypatch=monkeypatch)
    answer = made(incident(), Step.DRAIN)
    assert (answer.state, answer.details["drained_by"]) == (State.REFUSED, "")
    assert "Slurm has it DOWN" in answer.summary


def test_on_slurm_a_node_that_others_have_drained_is_not_repaired(requests: list[Mapping[str, Any]]) -> None:
    one = incident(slurm=True, inventory=None)
    made(replace(one, name="20200101-000000-1"), Step.DRAIN)
    answer = made(one, Step.REPAIR)
    assert (answer.state, "ask them" in answer.summary) == (State.REFUSED, True)
    assert len(requests) == 1


def test_the_drain_of_kubernetes_must_show_the_boot_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    live = {"metadata": {"name": "n3", "uid": "u3"}, "status": {"nodeInfo": {"bootID": "b1"}}}
    row = nodes_drain.Drain("n3", "Kubernetes", "due", "reason", "", live)
    nodes = nodes_drain.Nodes([HOSTS[2]], "", 1)
    monkeypatch.setattr(nodes, "cluster", object())
    monkeypatch.setattr(nodes, "read", lambda *_, **__: [row])
    for boot, state in (("b1", "due"), ("b2", "unknown"), ("", "unknown")):
        monkeypatch.setattr(host_reboot, "boots", lambda *_, b=boot: {"n3": b})
        assert acts._read(nodes, HOSTS[2], "reason", undo=False).state == state


def test_a_command_of_slurm_is_recorded_as_the_incident_that_runs_it() -> None:
    for command, words in (("scontrol update NodeName=n3", ["incident", "start"]), ("gpuctl nodes x", ["nodes", "x"])):
        assert acts._words(Entry(1, Step.DRAIN, command, "")) == words


def test_a_gpu_that_the_audit_of_now_does_not_fail_is_not_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was reset meanwhile, or GPUs are numbered again after one was lost."""
    monkeypatch.setattr(audit, "ask", lambda *_: type("Fleet", (), {"unasked": {}}))
    before = stories.DEAD_GPU[Step.AUDIT].findings
    for findings, why in (((), "has no FAIL"), ((replace(before[0], message="GPU 2: a row"),), "also shows: GPU 2")):
        monkeypatch.setattr(audit_rules, "judge", lambda *_, rows=findings: rows)
        assert why in acts._no_longer_fails(Target("n2"), 3)
    monkeypatch.setattr(audit_rules, "judge", lambda *_: before)
    assert acts._no_longer_fails(Target("n2"), 3) == ""


def test_no_gpu_is_reset_beside_a_user_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    use = facts(process(7), on={0: [7]})
    monkeypatch.setattr(acts, "_no_longer_fails", lambda *_: "")
    monkeypatch.setattr(nodes_service, "read_node", lambda host, _: node_use.node(host.name, use))
    one = incident(answers=stories.DEAD_GPU)
    answer = made(one, Step.REPAIR)
    assert (answer.state, "works there" in answer.summary) == (State.REFUSED, True)


# ---- resume ----------------------------------------------------------------------------------------------------------


def test_the_users_command_runs_once_and_without_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = "import json, sys; open(sys.argv[1], 'a').write(json.dumps(sys.argv[2:]))"
    one = incident(resume_with=(sys.executable, "-c", program, str(out), "$(touch x); *"))
    begun = [""]
    for _ in range(2):  # the second time after an interruption that came before the answer
        entry = Entry(7, Step.RESUME, rules.command(one, Step.RESUME), "", begun=begun[-1])
        answer = Acts(HOSTS, yes, begun.append).make(one, entry)
        assert answer.state is State.DONE
        assert "exit code 0" in answer.summary
    assert json.loads(out.read_text()) == ["$(touch x); *"]
    assert len(begun) == 2


@pytest.mark.parametrize(
    ("argv", "state", "wrong"),
    [
        (("/none/sbatch",), State.REFUSED, "is no program of this machine"),
        ((sys.executable, "-c", "import sys; sys.exit(3)"), State.FAILED, "exit code 3"),
    ],
)
def test_a_command_that_fails_is_no_resumed_job(argv: tuple[str, ...], state: State, wrong: str) -> None:
    answer = made(incident(resume_with=argv), Step.RESUME)
    assert (answer.state, wrong in answer.summary) == (state, True), answer.summary


@pytest.mark.parametrize(
    ("runs", "state", "text"),
    [
        ([], State.REFUSED, "not known to Slurm any more"),
        ([slurm.JobRun("9", False, "FAILED", 0)], State.REFUSED, "somebody else's"),
        ([slurm.JobRun("9", True, "PENDING", 1)], State.DONE, "it waits already"),
        ([slurm.JobRun("9", True, "REQUEUE_HOLD", 1)], State.REFUSED, "scontrol release 9"),
        ([slurm.JobRun("9", True, "COMPLETED", 0)], State.REFUSED, "nothing is left to resume"),
        ([slurm.JobRun("9", True, "FAILED", 0)] * 2, State.REFUSED, "an array"),
    ],
)
def test_only_a_job_of_the_user_that_has_ended_is_requeued(
    runs: list[slurm.JobRun], state: State, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "runs_of", lambda _: runs)
    answer = made(incident(slurm=True, job="9"), Step.RESUME)
    assert (answer.state, text in answer.summary) == (state, True)


def test_a_job_that_runs_or_was_cancelled_needs_a_consent_that_yes_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Question] = []
    rows = iter([slurm.JobRun("9", True, state, 0) for state in ("RUNNING", "FAILED", "CANCELLED")])
    monkeypatch.setattr(slurm, "runs_of", lambda _: [next(rows)])

    def ask(question: Question) -> str:
        asked.append(question)
        return "not done: declined"

    for _ in range(3):
        made(incident(slurm=True, job="9"), Step.RESUME, ask)
    assert [one.covers_yes for one in asked] == [False, True, False]


def requeued(rows: Sequence[slurm.JobRun | GpuctlError], code: int | None, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Answer of a requeue. `rows`: answers of Slurm about the job; the last one stays. `code`: of scontrol."""
    left, sent = list(rows), list[tuple[str, ...]]()

    def runs_of(_: str) -> list[slurm.JobRun]:
        row = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(row, GpuctlError):
            raise row
        return [row]

    def try_to(*argv: str) -> Done:
        sent.append(argv)
        return Done(code, b"", "scontrol: error: Job is pending" if code else "")

    monkeypatch.setattr(acts, "REQUEUED_S", 0.02)
    monkeypatch.setattr(acts, "POLL_S", 0.0)
    monkeypatch.setattr(slurm, "runs_of", runs_of)
    monkeypatch.setattr(slurm, "try_to", try_to)
    answer = made(incident(slurm=True, job="9"), Step.RESUME)
    assert sent in ([], [("scontrol", "requeue", "9")])
    return replace(answer, details={**answer.details, "sent": bool(sent)})


FAILED, AGAIN = slurm.JobRun("9", True, "FAILED", 0), slurm.JobRun("9", True, "PENDING", 1)
LOST = GpuctlError("ask Slurm for job 9", "no answer")


@pytest.mark.parametrize(
    ("rows", "code", "state", "text"),
    [
        ([FAILED, FAILED, AGAIN], 0, State.DONE, "is PENDING, restart 1"),
        ([FAILED, FAILED, LOST, LOST, AGAIN], 0, State.DONE, "is PENDING, restart 1"),
        ([FAILED, FAILED, AGAIN], None, State.DONE, "is PENDING, restart 1"),
        ([FAILED], None, State.UNKNOWN, "scontrol gave no answer"),
        ([FAILED, FAILED, LOST], 0, State.UNKNOWN, "no answer"),
        ([FAILED], 1, State.FAILED, "Job is pending"),
    ],
)
def test_a_requeued_job_is_read_back(
    rows: list[slurm.JobRun | GpuctlError], code: int | None, state: State, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = requeued(rows, code, monkeypatch)
    assert (answer.state, text in answer.summary) == (state, True), answer.summary
    assert answer.details["begun"]


@pytest.mark.parametrize("now", [replace(FAILED, state="RUNNING"), replace(FAILED, restarts=1), LOST])
def test_a_job_that_changed_before_the_consent_is_not_requeued(
    now: slurm.JobRun | GpuctlError, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = requeued([FAILED, now], 0, monkeypatch)
    assert (answer.state, "since it was shown" in answer.summary) == (State.REFUSED, True)
    assert not answer.details["sent"]


def test_a_job_whose_requeue_could_not_be_read_back_is_not_requeued(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = requeued([replace(FAILED, restarts=None)], 0, monkeypatch)
    assert (answer.state, answer.details["sent"]) == (State.REFUSED, False)
