"""Use of nodes by Slurm's records, alone and beside what the node tells itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.domain.slurm_records import Gres, JobRecord, NodeRecord
from gpuctl.nodes import node_use, slurm_view
from gpuctl.nodes.judge import judge
from gpuctl.nodes.model import State
from tests.rig.gpu_user_facts import NOW, STEPS, facts, job, process

RECORD = NodeRecord("gpu-1", ("gpu-1",), ("main",), "mixed", (Gres("h100", 8),), (Gres("h100", 3, (0, 1, 5)),))


def record_of(number: str, *gpus: int, user: str = "carol", **more: str) -> JobRecord:
    texts = {"name": "train", "account": "ml", "partition": "main", "state": "RUNNING", **more}
    return JobRecord(number, user=user, start=NOW - 60, gpus={"gpu-1": (Gres("h100", len(gpus), gpus),)}, **texts)


JOBS = [record_of("9", 0, 1), record_of("10", 5, user="dave", account="(null)")]


def test_slurm_alone_tells_who_has_which_gpus_and_calls_none_idle() -> None:
    one = slurm_view.node(RECORD, JOBS, NOW, frozenset({"dave"}))
    rows = [(user.who, user.what, user.gpus, user.since, user.mine) for user in one.users]
    assert rows == [("carol", "job 9", (0, 1), NOW - 60, False), ("dave", "job 10", (5,), NOW - 60, True)]
    assert (one.count(State.RESERVED), one.count(State.UNKNOWN), one.count(State.IDLE)) == (3, 5, 0)
    assert one.users[0].details == {
        "job_name": "train",
        "account": "ml",
        "partition": "main",
        "job_state": "RUNNING",
    }
    assert "account" not in one.users[1].details
    [finding] = judge(one)
    assert (finding.check, finding.verdict) == ("use", Verdict.UNKNOWN)
    assert "no process" in finding.message


def test_gpus_of_jobs_that_slurm_hides_are_not_free() -> None:
    one = slurm_view.node(RECORD, JOBS[:1], NOW, frozenset())
    assert [(user.who, user.gpu_count) for user in one.users] == [("carol", None), ("UNKNOWN", 1)]
    assert one.count(State.RESERVED) == 3


def test_a_node_that_did_not_answer_says_so_and_keeps_its_allocations() -> None:
    one = slurm_view.node(RECORD, JOBS, NOW, frozenset(), "no route to host")
    assert not one.reached
    assert [finding.check for finding in judge(one)] == ["reachable", "use"]
    assert "no route" in judge(one)[0].message


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("idle", None),
        ("mixed", None),
        ("allocated+", None),
        ("drained", Verdict.WARN),
        ("draining", Verdict.WARN),
        ("idle@", Verdict.WARN),
        ("idle~", Verdict.WARN),
        ("down", Verdict.FAIL),
        ("down*", Verdict.FAIL),
        ("idle*", Verdict.FAIL),
        ("fail", Verdict.FAIL),
    ],
)
def test_a_node_out_of_use_is_told_with_reason_author_and_time(state: str, verdict: Verdict | None) -> None:
    record = replace(RECORD, state=state, reason="GPU 3 is lost", by="root", since=NOW)
    findings = [one for one in judge(slurm_view.node(record, [], NOW, frozenset())) if one.check == "slurm-state"]
    assert [one.verdict for one in findings] == ([verdict] if verdict else [])
    if verdict is not None and "@" not in state and "~" not in state:
        assert "GPU 3 is lost (root, " in findings[0].message


def asked(*jobs: JobRecord, **more: Any) -> dict[str, Any]:
    return slurm_view.with_jobs(facts(**more), RECORD, jobs)


def test_a_gpu_of_a_job_without_a_process_is_reserved_for_its_user() -> None:
    one = node_use.node("gpu-1", asked(*JOBS))
    assert [gpu.state for gpu in one.gpus[:2]] == [State.RESERVED, State.RESERVED]
    assert "job 9 of carol has it" in one.gpus[0].why
    assert one.gpus[7].state is State.IDLE


def test_a_job_whose_gpus_no_task_names_gets_them_from_slurm() -> None:
    before = node_use.node("gpu-1", facts(slurm_jobs=[job("9", known=False)]))
    after = node_use.node("gpu-1", asked(*JOBS, slurm_jobs=[job("9", known=False)]))
    assert (before.gpus[7].state, after.gpus[7].state) == (State.UNKNOWN, State.IDLE)
    assert after.gpus[1].holders == ("job 9 of carol",)


def test_an_unread_node_stays_unknown_where_slurm_hides_a_job() -> None:
    unread: dict[str, Any] = {"slurm_jobs": None, "unread": {"slurm_jobs": "not readable"}}
    assert node_use.node("gpu-1", asked(*JOBS, **unread)).gpus[7].state is State.IDLE
    assert node_use.node("gpu-1", asked(*JOBS[:1], **unread)).gpus[7].state is State.UNKNOWN


def test_users_get_the_account_and_the_name_that_the_node_lacks() -> None:
    inside = process(7, f"{STEPS}/job_9/step_0/user/task_0", uid=4242, login_uid=None)
    made = slurm_view.with_jobs(facts(inside, on={0: [7]}, slurm_jobs=[job("9", 0, 1)]), RECORD, JOBS)
    one = slurm_view.with_names(node_use.node("gpu-1", made), RECORD, JOBS)
    [user] = one.users
    assert (user.who, user.person, user.details["account"]) == ("carol", "carol", "ml")


def test_gpus_outside_of_a_job_are_hidden_and_neither_lost_nor_idle() -> None:
    whole = facts(process(7, f"{STEPS}/job_10/step_1/user/task_0"), on={5: [7]})
    seen = {**whole, "gpus": [whole["gpus"][5]]}
    one = node_use.node("gpu-1", slurm_view.with_jobs(slurm_view.as_outside(seen, RECORD), RECORD, JOBS))
    assert (one.total, one.gpus[5].state, one.users[0].gpus) == (8, State.USED, (5,))
    assert {gpu.state for gpu in one.gpus if gpu.index != 5} == {State.UNKNOWN}
    assert "hidden from the job" in one.gpus[0].why
    assert one.gpus[0].holders == ("job 9 of carol",)
    assert not any("lists 1 of 8" in finding.message for finding in judge(one))
