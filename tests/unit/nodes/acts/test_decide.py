"""Ending work: a word of the user means one thing, goes through its owner, and is refused where it must be."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.nodes.acts import decide
from gpuctl.nodes.acts.model import Consent, End, Means, Plan
from gpuctl.nodes.acts.target import choose
from gpuctl.nodes.node_use import node
from tests.rig.gpu_user_facts import ALICE, POD, STEPS, UID, facts, job, pod_devices, process, uuid

ALICES = frozenset({"alice"})
FORCE = Consent(force=True, reason="it blocks the release")
JOB = f"{STEPS}/job_9/step_0/user/task_0"


def plan(made: dict[str, Any], text: str, consent: Consent = FORCE, me: frozenset[str] = ALICES) -> Plan:
    shown = node("gpu-1", made, me)
    return decide.decide(shown, made, choose(shown, made, text), consent)


def two_users() -> dict[str, Any]:
    """alice on GPUs 0 and 1 with two processes; the job 9 on 2 and 3."""
    own = [process(70), process(71)]
    ranks = [process(80 + n, JOB, uid=1001, login_uid=None) for n in (2, 3)]
    return facts(*own, *ranks, on={0: [70], 1: [70, 71], 2: [82], 3: [83]}, slurm_jobs=[job("9", 2, 3)], slurmd=True)


@pytest.mark.parametrize(
    ("text", "means", "pids"),
    [
        ("0", Means.SIGNALS, [70]),
        ("gpu:1", Means.SIGNALS, [70, 71]),
        ("71", Means.SIGNALS, [71]),
        ("pid:70", Means.SIGNALS, [70]),
        ("2", Means.JOB, [82, 83]),
        ("job:9", Means.JOB, [82, 83]),
        ("83", Means.JOB, [83]),
        (uuid(0), Means.SIGNALS, [70]),
    ],
)
def test_a_word_names_a_gpu_a_process_or_a_job(text: str, means: Means, pids: list[int]) -> None:
    [end] = plan(two_users(), text).ends
    assert (end.means, sorted(process.pid for process in end.processes)) == (means, pids)


@pytest.mark.parametrize(
    ("made", "text", "wrong"),
    [
        (facts(process(3), on={0: [3], 3: [3]}), "3", "it is a gpu and a pid"),
        (two_users(), "7", "no process is on gpu 7"),
        (two_users(), "99", "no gpu or pid or job of this name"),
        (two_users(), "team-a/trainer-0", "no pod of this name"),
        (two_users(), "gpu:x", "no gpu of this name"),
    ],
)
def test_a_word_that_means_nothing_or_two_things_is_refused(made: dict[str, Any], text: str, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        plan(made, text)


def test_what_is_shown_is_what_the_node_compares() -> None:
    [end] = plan(two_users(), "71").ends
    assert end.shown == (
        {"pid": 71, "start_ticks": 100, "since": end.processes[0].since, "uid": 1000, "cgroup": ALICE},
    )


def test_ones_own_work_needs_no_more_consent_and_that_of_others_force_and_reason() -> None:
    assert plan(two_users(), "0", Consent()).refusals == ()
    [reason] = plan(two_users(), "0", Consent(), frozenset({"bob"})).refusals
    assert "is not yours" in reason
    assert "--reason" in plan(two_users(), "0", Consent(force=True)).refusals[0]
    assert plan(two_users(), "0", FORCE, frozenset()).refusals == ()


SERVICE = "0::/system.slice/vllm.service"
AGAINST = {
    "a daemon": (facts(process(7, SERVICE, name="nv-hostengine"), on={0: [7]}), "pid:7", "serves everybody"),
    "state D": (facts(process(7, state="D", command=None), on={0: [7]}), "0", "only a reset of the GPU"),
    "a zombie": (facts(process(7, state="Z"), on={0: [7]}), "0", "zombie"),
    "a start that nobody knows": (facts(process(7, start_ticks=None), on={0: [7]}), "0", "cannot be compared"),
    "a hidden process": (facts(on={0: [7]}), "0", "cannot be compared"),
    "inside a container": (facts(process(7), on={0: [7]}, pid_namespace="nested"), "0", "inside a container"),
    "a job without a number": (
        facts(process(7, f"{STEPS}/s5K1KKYAYG5D00/step_0/user/task_0"), on={0: [7]}),
        "0",
        "the number of job s5K1KKYAYG5D00",
    ),
    "a static pod": (
        facts(process(7, POD.replace(UID.replace("-", "_"), "c" * 32)), on={0: [7]}),
        "0",
        "is a static pod",
    ),
}


@pytest.mark.parametrize(("made", "text", "reason"), AGAINST.values(), ids=list(AGAINST))
def test_no_consent_helps_against(made: dict[str, Any], text: str, reason: str) -> None:
    for row in made["gpus"]:
        for one in row["processes"] or ():
            details = made["processes"].get(str(one["pid"]))
            one["name"] = details["name"] if details else one["name"]
    assert reason in "\n".join(plan(made, text).refusals)


def test_all_users_of_a_gpu_are_shown_each_with_its_own_means() -> None:
    rows = pod_devices(f"{uuid(0)}::0")
    made = facts(process(7, POD, uid=0, login_uid=None), process(8), on={0: [7, 8]}, pod_devices=rows)
    ends = plan(made, "0").ends
    assert sorted((str(end.means), end.label) for end in ends) == [
        ("TERM, then KILL", "python (8) of alice from 10.0.0.5"),
        ("delete the pod", "pod team-a/trainer-0"),
    ]
    assert next(end for end in ends if end.pod).pod == UID


def test_a_job_that_has_reserved_a_gpu_can_be_ended_without_a_process() -> None:
    made = facts(slurm_jobs=[job("9", 2)], slurmd=True)
    [end] = plan(made, "job:9").ends
    assert (end.means, end.job, end.processes) == (Means.JOB, "9", ())
    with pytest.raises(InvalidInput) as error:
        plan(made, "2")
    assert "job 9 has it" in error.value.hint


END = End(Means.POD, "pod team-a/trainer-0", "", pod=UID, namespace="team-a", name="trainer-0")


def pod(**more: Any) -> dict[str, Any]:
    meta = {"namespace": "team-a", "name": "trainer-0", "uid": UID, "ownerReferences": [{"controller": True}], **more}
    return {"metadata": meta, "spec": {}}


@pytest.mark.parametrize(
    ("live", "reason"),
    [
        (None, "not in this cluster"),
        (pod(uid="another"), "was replaced"),
        (pod(ownerReferences=[]), "no controller"),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), "static pod"),
        (pod(namespace="kube-system"), "serves the cluster"),
        (pod(namespace="gpu-operator"), "serves the cluster"),
        ({**pod(), "spec": {"priorityClassName": "system-node-critical"}}, "serves the cluster"),
    ],
)
def test_a_pod_that_must_stay(live: dict[str, Any] | None, reason: str) -> None:
    assert reason in "\n".join(decide.against_pod(live, END, FORCE))


def test_a_pod_with_a_controller_may_go_and_one_without_if_the_user_says_so() -> None:
    assert decide.against_pod(pod(), END, FORCE) == []
    assert decide.against_pod(pod(ownerReferences=[]), END, Consent(bare_pods=True)) == []


@pytest.mark.parametrize(
    ("user", "me", "refused"),
    [
        ("alice(1000)", ALICES, False),
        ("bob(1001)", ALICES, True),
        ("root(0)", frozenset({"root"}), True),
        ("", ALICES, True),
    ],
)
def test_whose_a_job_is_slurm_says(user: str, me: frozenset[str], refused: bool) -> None:
    end = End(Means.JOB, "job 9", "", job="9")
    assert bool(decide.job_lacks({"UserId": user}, end, me, Consent())) is refused
    assert decide.job_lacks({"UserId": user}, end, me, FORCE) == []
