"""Findings on the use of GPUs, and the exit codes that follow."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.nodes.judge import judge
from gpuctl.nodes.node_use import node, unasked
from tests.rig.gpu_user_facts import ALICE, STEPS, facts, job, process


def judged(made: dict[str, Any]) -> list[tuple[str, Verdict, str]]:
    return [(one.check, one.verdict, one.message) for one in judge(node("gpu-1", made))]


def test_a_node_of_which_all_is_known_is_ok_with_its_counts() -> None:
    made = facts(process(7), on={0: [7], 1: [7]})
    assert judged(made) == [("use", Verdict.OK, "8 GPUs: 2 in use, 6 idle")]
    none = facts(gpus=None, attached=None, on_bus=0, unread={"gpus": "nvidia-smi: not on this host"})
    assert judged(none) == [("use", Verdict.OK, "no GPU")]


def held() -> dict[str, Any]:
    made = facts(process(66), open_by={"66": [0]})
    made["gpus"][0]["used_mib"] = 40_000
    return made


HIDDEN = "processes outside of this container are hidden by its pid namespace"
CASES = {
    "another's GPU": (
        facts(process(7), on={1: [7]}, slurmd=True, slurm_jobs=[job("10", 1)]),
        ("foreign", Verdict.FAIL, "alice from 10.0.0.5 computes on GPU 1, which job 10 has"),
    ),
    "another job's GPU": (
        facts(process(7, f"{STEPS}/job_9/step_0/user/task_0"), on={1: [7]}, slurm_jobs=[job("10", 1)]),
        ("foreign", Verdict.FAIL, "job 9 of alice computes on GPU 1, which job 10 has"),
    ),
    "outside of Slurm": (
        facts(process(7), on={1: [7], 2: [7]}, slurmd=True),
        ("unallocated", Verdict.WARN, "alice from 10.0.0.5 uses GPU 1, 2, which the scheduler gave to nobody"),
    ),
    "blocked": (
        facts(process(7, ALICE, state="D", blocked_in="uvm_push_wait"), on={1: [7]}),
        (
            "blocked",
            Verdict.WARN,
            "python (7) of alice from 10.0.0.5 waits in the kernel in uvm_push_wait, and ignores signals",
        ),
    ),
    "zombie": (
        facts(process(7, ALICE, state="Z"), on={1: [7]}),
        ("zombie", Verdict.WARN, "python (7) of alice from 10.0.0.5 is a zombie, and still listed on GPU 1"),
    ),
    "held memory": (
        held(),
        (
            "held-memory",
            Verdict.WARN,
            "GPU 0: 40000 MiB are in use, and no process on it; python (66) holds it open",
        ),
    ),
    "an owner of unknown form": (
        facts(process(7, "0::/x/y"), on={1: [7]}),
        ("owner", Verdict.UNKNOWN, "the owner of python (7) is unknown: its control group /x/y has no known form"),
    ),
    "unknown use": (
        facts(pid_namespace="nested"),
        (
            "use",
            Verdict.UNKNOWN,
            f"the use of GPU 0, 1, 2, 3, 4, 5, 6, 7 is unknown: {HIDDEN}",
        ),
    ),
    "nvidia-smi failed": (
        facts(gpus=None, attached=None, unread={"gpus": "GPU is lost"}),
        ("gpus", Verdict.UNKNOWN, "the use of its GPUs is unknown: GPU is lost"),
    ),
    "a GPU is lost": (
        facts(attached=9),
        ("gpus", Verdict.UNKNOWN, "nvidia-smi lists 8 of 9 GPUs; the use of the others is unknown"),
    ),
    "an error in place of the number of GPUs": (
        facts(attached=None, unread={"attached": "[Unknown Error]"}),
        ("gpus", Verdict.UNKNOWN, "8 GPUs answer; how many the driver has is unknown: [Unknown Error]"),
    ),
}


@pytest.mark.parametrize(("made", "expected"), CASES.values(), ids=list(CASES))
def test_what_is_not_as_its_owner_intends(made: dict[str, Any], expected: tuple[str, Verdict, str]) -> None:
    assert judged(made) == [expected]


def test_a_node_that_did_not_answer_is_unknown() -> None:
    [finding] = judge(unasked("gpu-2", "it cannot be reached: No route to host"))
    assert (finding.check, finding.verdict) == ("reachable", Verdict.UNKNOWN)
    assert "No route to host" in finding.message
