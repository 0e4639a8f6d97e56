"""Acts on nodes over a connection that is lost, and which nodes an audit drains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import fail, unknown, warn
from gpuctl.hosts.model import HostResult, Target
from gpuctl.nodes.acts.model import Consent, End, Means, Plan
from gpuctl.workflows import nodes_drain, nodes_kill, nodes_service
from gpuctl.workflows.recorded_act import recorded

LOST = HostResult("gpu-1", wrong="the connection was lost", unreachable=True)
SHOWN = {"pid": 7, "start_ticks": 1, "since": 2, "uid": 3, "cgroup": "0::/x"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path))


def answer(*states: str) -> HostResult:
    rows = [{"pid": 7 + n, "state": one, "reason": "", "signals": []} for n, one in enumerate(states)]
    return HostResult("gpu-1", {"act": {"processes": rows, "by_descriptor": True}})


def kill(monkeypatch: pytest.MonkeyPatch, *results: HostResult) -> tuple[str, str, list[dict[str, Any]]]:
    """State and reason of an act whose visits have these results, the last one again and again; and the requests."""
    left, requests = list(results), []

    def visit(targets: Sequence[Target], request_of: Any, **_: Any) -> list[HostResult]:
        requests.append(request_of(targets[0]))
        return [left.pop(0) if len(left) > 1 else left[0]]

    clock = count(0, 5)
    monkeypatch.setattr(nodes_kill, "run_on_all", visit)
    standin_time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None)
    monkeypatch.setattr(nodes_kill, "time", standin_time)
    plan = Plan("gpu-1", (End(Means.SIGNALS, "python (7)", "alice", shown=(SHOWN,), mine=True),))
    [outcome], name = nodes_kill.carry_out(
        nodes_kill.Kill(plan, Target("gpu-1"), None, {}, {}, 5), ["nodes", "kill"], Consent(), 1
    )
    record: Mapping[str, Any] = run_history.load(name).hosts["gpu-1"]
    assert record["outcomes"][0]["state"] == outcome.state
    assert record["status"] == ("ended" if outcome.is_done else outcome.state)
    return outcome.state, outcome.reason, requests


def test_after_a_lost_connection_the_node_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    state, reason, requests = kill(monkeypatch, LOST, answer("runs"), answer("gone"))
    assert (state, "connection was lost" in reason) == ("ended", True)
    assert [bool(request.get("check")) for request in requests] == [False, True, True]


def test_what_still_runs_after_a_lost_connection_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    state, reason, _ = kill(monkeypatch, LOST, answer("runs"))
    assert (state, "these processes run: 7" in reason) == ("left", True)


def test_an_end_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kill(monkeypatch, LOST)[0] == "unknown"


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (("ended", "killed"), "ended"),
        (("gone", "gone"), "gone"),
        (("ended", "left"), "left"),
        (("runs", "changed"), "changed"),
        (("denied", "ended"), "denied"),
        (("runs", "refused"), "refused"),
    ],
)
def test_the_worst_of_several_processes_decides(
    monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...], state: str
) -> None:
    assert kill(monkeypatch, answer(*states))[0] == state


def test_a_killed_run_leaves_a_record_of_what_was_shown() -> None:
    before = []

    def interrupted() -> None:
        with recorded(["nodes", "kill"], {"gpu-1": {"shown": ["pid 7"]}}) as entry:
            before.append(run_history.load(entry.name))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (before[0].exit_code, before[0].hosts["gpu-1"]["status"]) == (None, "unfinished")
    after = run_history.load(before[0].name)
    assert (after.exit_code, after.hosts["gpu-1"]["status"], after.hosts["gpu-1"]["shown"]) == (
        *(130, "unfinished"),
        ["pid 7"],
    )


def test_an_act_that_cannot_be_recorded_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(GpuctlError, match="record"), recorded(["nodes", "kill"], {"gpu-1": {}}):
        pytest.fail("it was done")


def test_only_nodes_with_a_fail_are_drained_each_for_its_worst() -> None:
    findings = [
        warn("gpu-memory", "gpu-1", "many remaps"),
        fail("xid", "gpu-2 GPU 0000:18:00.0", "79: fallen off the bus"),
        fail("nvlink", "gpu-2", "a link is down"),
        fail("in-use", "gpu-3", "alice works there"),
        unknown("reachable", "gpu-4", "no answer"),
        fail("driver", "", "two versions"),
    ]
    reasons = nodes_drain.reasons(findings)
    assert list(reasons) == ["gpu-2"]
    assert reasons["gpu-2"].endswith(" (and 1 more)")
    assert len(nodes_drain.reasons([fail("xid", "gpu-5", "x" * 500)])["gpu-5"]) <= 120


JOB = {"JobId": "9", "UserId": "alice(1000)", "JobState": "RUNNING"}


def of(end: End) -> nodes_kill.Kill:
    return nodes_kill.Kill(Plan("gpu-1", (end,)), Target("gpu-1"), None, {}, {}, 5)


def with_job(monkeypatch: pytest.MonkeyPatch, result: HostResult) -> nodes_kill.Kill:
    monkeypatch.setattr(nodes_kill, "run_on_all", lambda *_, **__: [result])
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    return nodes_kill._with_jobs(of(End(Means.JOB, "job 9 of alice", "alice", job="9")), {"login": "root"}, Consent())


def test_a_job_is_shown_and_compared_as_slurm_describes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kill = with_job(monkeypatch, HostResult("gpu-1", {"act": {"job": JOB, "state": "runs", "reason": ""}}))
    assert (kill.jobs, kill.plan.refusals) == ({"9": JOB}, ())
    requests = []

    def cancelled(targets: Sequence[Target], request_of: Any, **_: Any) -> list[HostResult]:
        requests.append(request_of(targets[0]))
        return [HostResult("gpu-1", {"act": {"job": JOB, "state": "changed", "reason": "queued again"}})]

    monkeypatch.setattr(nodes_kill, "run_on_all", cancelled)
    [outcome], name = nodes_kill.carry_out(kill, ["nodes", "kill"], Consent(), 1)
    assert (outcome.state, requests[0]["shown"]) == ("changed", JOB)
    assert run_history.load(name).hosts["gpu-1"]["shown"][0]["job"] == JOB


def test_a_job_of_another_or_an_unknown_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**JOB, "UserId": "bob(1001)"}
    kill = with_job(monkeypatch, HostResult("gpu-1", {"act": {"job": other, "state": "runs", "reason": ""}}))
    assert "job 9 of bob is not yours" in kill.plan.refusals[0]
    kill = with_job(monkeypatch, HostResult("gpu-1", {"act": {"job": None, "state": "unknown", "reason": "no answer"}}))
    assert "no answer" in kill.plan.refusals[0]
    assert "no ssh" in with_job(monkeypatch, HostResult("gpu-1", wrong="no ssh")).plan.refusals[0]
    with pytest.raises(GpuctlError, match="no ssh"):
        nodes_kill.carry_out(
            with_job(monkeypatch, HostResult("gpu-1", wrong="no ssh")), ["nodes", "kill"], Consent(), 1
        )
    assert run_history.names() == []


def test_a_pod_needs_its_cluster() -> None:
    end = End(Means.POD, "pod team-a/trainer-0", "", pod="u", namespace="team-a", name="trainer-0")
    kill = nodes_kill._with_pods(of(end), Consent(force=True, reason="x"))
    assert "--context NAME deletes the pod" in kill.plan.refusals[0]


def test_what_a_node_has_against_a_restart_is_unknown_after_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_service, "run_on_all", lambda *_, **__: [LOST])
    deed = nodes_service.Deed(Target("gpu-1"), "restart efa", "jobs", ())
    with pytest.raises(GpuctlError, match="connection was lost") as caught:
        nodes_service._checked(deed)
    assert caught.value.exit_code == 3
