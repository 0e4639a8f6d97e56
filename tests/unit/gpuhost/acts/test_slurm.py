"""Slurm's jobs and nodes as scontrol prints them: what is cancelled or drained is what was shown, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts import slurm_job, slurm_node
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.acts.answer_types import CancelledJob, SlurmDrain
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host, Result

from gpuctl.engine import typed_json

JOB = (
    "JobId=9 JobName=train big UserId=alice(1000) GroupId=ml(1000) MCS_label=N/A Priority=1 Account=ml QOS=normal"
    " JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0"
    " StartTime=2026-11-27T09:00:00 EndTime=Unknown Partition=main AllocNode:Sid=login:1 NodeList=h[1-2] NumNodes=2"
    " AllocTRES=cpu=2,node=2,gres/gpu=16 Command=/home/alice/run.sh WorkDir=/home/alice\n"
)
DONE = Result(0, "", "")


class StandinSlurm(Host):
    """Stand-in for a host of Slurm: scontrol prints `texts` in turn, the last one again and again."""

    def __init__(self, *texts: str, scancel: Result = DONE) -> None:
        super().__init__()
        self.texts, self.scancel = list(texts), scancel
        self.changes: list[tuple[str, ...]] = []

    def run(self, *argv: str, **more: Any) -> Result:
        """See Host."""
        if argv[0] == "scancel" or "update" in argv:
            self.changes.append(argv)
            return self.scancel
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        return Result(1, "", text) if "error" in text else Result(0, text, "")


GONE = "slurm_load_jobs error: Invalid job id specified"


def cancel(host: StandinSlurm, **more: Any) -> dict[str, Any]:
    shown, _ = slurm_job.read(StandinSlurm(JOB), "9")
    answer = slurm_job.run(host, {"job": "9", "shown": shown, "grace_s": 0, **more})
    typed_json.read(answer, CancelledJob)
    return answer


def test_the_job_that_was_shown_is_cancelled() -> None:
    host = StandinSlurm(JOB, GONE)
    assert cancel(host)["state"] == "ended"
    assert host.changes == [("scancel", "--state=RUNNING", "9")]


def test_a_job_that_completes_is_cancelled_without_a_filter_that_scancel_lacks() -> None:
    text = JOB.replace("JobState=RUNNING", "JobState=COMPLETING")
    host = StandinSlurm(text)
    assert cancel(host)["state"] == "left"
    assert host.changes == [("scancel", "9")]


def test_check_mode_gives_what_identifies_the_job() -> None:
    host = StandinSlurm(JOB)
    answer = cancel(host, check=True)
    job = answer["job"]
    assert (answer["state"], job["JobName"], job["UserId"], job["NodeList"]) == (
        *("runs", "train big"),
        *("alice(1000)", "h[1-2]"),
    )
    assert host.changes == []


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (JOB.replace("JobState=RUNNING", "JobState=PENDING"), "it is PENDING now: it was queued again"),
        (JOB.replace("Restarts=0", "Restarts=1"), "Restarts was 0, is 1"),
        (JOB.replace("T09:00:00", "T11:00:00"), "StartTime was"),
        (JOB.replace("h[1-2]", "h[3-4]"), "NodeList was h[1-2], is h[3-4]"),
        (JOB.replace("alice(1000)", "bob(1001)"), "UserId was alice(1000), is bob(1001)"),
    ],
)
def test_another_run_of_the_job_is_not_cancelled(now: str, reason: str) -> None:
    host = StandinSlurm(now)
    answer = cancel(host)
    assert (answer["state"], host.changes) == ("changed", [])
    assert reason in answer["reason"]


def test_one_task_of_an_array_does_not_end_the_array() -> None:
    """The number of one of its tasks is the array's own number."""
    text = JOB.replace("JobId=9 ", "JobId=9 ArrayJobId=9 ArrayTaskId=3 ")
    other = JOB.replace("JobId=9 ", "JobId=8 ArrayJobId=9 ArrayTaskId=2 ")
    shown, _ = slurm_job.read(StandinSlurm(other + text), "9")
    host = StandinSlurm(other + text, GONE)
    assert slurm_job.run(host, {"job": "9", "shown": shown, "grace_s": 0})["state"] == "ended"
    assert host.changes == [("scancel", "--state=RUNNING", "9_3")]


def test_a_name_that_imitates_fields_makes_the_job_unknown() -> None:
    host = StandinSlurm(JOB.replace("train big", "x UserId=bob(1001)"))
    answer = cancel(host)
    assert (answer["state"], host.changes) == ("unknown", [])
    assert "twice" in answer["reason"]


def test_refusals_and_jobs_that_stay_are_reported() -> None:
    denied = StandinSlurm(JOB, scancel=Result(1, "", "scancel: error: Access/permission denied"))
    assert cancel(denied)["state"] == "denied"
    assert cancel(StandinSlurm(JOB))["state"] == "left"
    assert cancel(StandinSlurm(GONE))["state"] == "gone"
    assert cancel(StandinSlurm("slurm error: Unable to contact slurm controller"))["state"] == "unknown"


def node(state: str, reason: str = "") -> str:
    return f"NodeName=h1 Arch=x86_64 State={state} ThreadsPerCore=1 Partitions=main " + (
        f"Reason={reason} [root@2026-11-27T10:00:00]\n" if reason else "\n"
    )


OURS, THEIRS = "gpuctl: xid 79 (20261127-1)", "power supply"
DRAINS = {
    "free": (False, [node("IDLE"), node("IDLE+DRAIN", OURS)], "done", ["State=DRAIN", f"Reason={OURS}"]),
    "in use": (False, [node("MIXED"), node("MIXED+DRAIN", OURS)], "done", ["State=DRAIN", f"Reason={OURS}"]),
    "drained by us already": (False, [node("IDLE+DRAIN", OURS)], "done", []),
    "drained by others": (False, [node("IDLE+DRAIN", THEIRS)], "others", []),
    "not responding": (False, [node("DOWN*", "Not responding")], "others", []),
    "it does not take it": (False, [node("IDLE")], "failed", ["State=DRAIN", f"Reason={OURS}"]),
    "undo ours": (True, [node("IDLE+DRAIN", OURS), node("IDLE")], "done", ["State=RESUME"]),
    "undo theirs": (True, [node("IDLE+DRAIN", THEIRS)], "others", []),
    "undo nothing": (True, [node("IDLE")], "done", []),
    "unknown": (False, ["slurm_load_node error: Unable to contact slurm controller"], "unknown", []),
}


@pytest.mark.parametrize(("undo", "texts", "state", "changes"), DRAINS.values(), ids=list(DRAINS))
def test_a_drain_is_set_once_and_taken_back_if_it_is_ours(
    undo: bool, texts: list[str], state: str, changes: list[str]
) -> None:
    host = StandinSlurm(*texts)
    answer = slurm_node.run(host, {"text": "xid 79 (20261127-1)", "undo": undo, "node": "h1"})
    typed_json.read(answer, SlurmDrain)
    assert answer["state"] == state
    assert [list(argv[3:]) for argv in host.changes] == ([changes] if changes else [])


def test_a_drain_for_another_purpose_is_not_ours() -> None:
    host = StandinSlurm(node("IDLE+DRAIN", OURS))
    for undo in (False, True):
        request = {"text": "bootstrap gpu-node: x", "undo": undo, "node": "h1", "ours": "bootstrap gpu-node"}
        assert slurm_node.run(host, request)["state"] == "others"
    assert host.changes == []


def test_an_audit_replaces_the_reason_of_a_roll_out() -> None:
    rollout = "gpuctl: bootstrap gpu-node: driver 580.178.04 (20261127-1)"
    host = StandinSlurm(node("IDLE+DRAIN", rollout), node("IDLE+DRAIN", OURS))
    request = {"text": "xid 79 (20261127-1)", "undo": False, "node": "h1", "yields": "bootstrap gpu-node"}
    assert slurm_node.run(host, request)["state"] == "done"
    assert [list(argv[3:]) for argv in host.changes] == [["State=DRAIN", f"Reason={OURS}"]]
