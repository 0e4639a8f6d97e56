"""What a step came to, from lines that a real srun 22.05 printed."""

from __future__ import annotations

import pytest

from gpuctl.nccl.model import Launch, Outcome, Rank, Run, Sweep
from gpuctl.nccl.runners.slurm import outcome
from gpuctl.nccl.runners.slurm.allocation import describe_reason
from gpuctl.nccl.runners.slurm.outcome import StepObservations

LAUNCH = Launch(("h1", "h2"), Sweep(gpus_per_node=2))
CUT = "the text ends after 67108864 bytes"
STEP = "slurmstepd-h1: error: *** STEP 5.0 ON h1 CANCELLED AT 2026-11-21T15:12:58 ***"


RANKS = (Rank(0, "h1", None, None, None),)  # the test told of its devices


def settled(
    *last: str,
    run: Outcome = Outcome.TRUNCATED,
    cause: str = CUT,
    code: int = 1,
    over: str = "",
    ranks: tuple[Rank, ...] = RANKS,
) -> Run:
    runs = [Run(run, cause, "all_reduce", (), None, None, ranks)]
    seen = StepObservations("", code, last, {}, (), "64M", 3.0, job_over=over, mpi="pmi2")
    return outcome.settled(LAUNCH, runs, seen).run


def test_a_killed_task_is_named_where_the_test_says_nothing() -> None:
    run = settled("srun: error: h2: task 3: Killed", "srun: launch/slurm: _step_signal: Terminating StepId=3.0")
    assert (run.outcome, run.cause) == (Outcome.FAILED, "h2: Killed (task 3)")


def test_ranks_that_crash_have_failed_though_srun_then_cancels_their_step() -> None:
    run = settled(STEP, "srun: error: h2: tasks 2-3: Segmentation fault")
    assert (run.outcome, run.cause) == (Outcome.FAILED, "h2: Segmentation fault (task 2-3)")


def test_a_crash_before_the_first_word_is_not_laid_on_the_node() -> None:
    run = settled(STEP, "srun: error: h4: task 7: Segmentation fault", ranks=())
    assert run.outcome is Outcome.FAILED
    assert run.cause == f"h4: Segmentation fault (task 7){outcome.EARLY}"
    assert "on any node" in run.cause


def test_what_the_test_itself_said_goes_first() -> None:
    run = settled(
        "srun: error: h2: task 3: Exited with exit code 3", run=Outcome.FAILED, cause="rank 2 on h2: it broke"
    )
    assert (run.outcome, run.cause) == (Outcome.FAILED, "rank 2 on h2: it broke")


def test_out_of_memory_is_said() -> None:
    run = settled(STEP, "srun: error: h2: task 1: Out Of Memory")
    assert (run.outcome, run.cause) == (Outcome.KILLED, "h2: out of memory (task 1)")


def test_a_step_that_a_user_cancels_is_killed() -> None:
    assert settled(STEP).cause == "somebody cancelled its step"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "slurmstepd: error: *** JOB 7 ON h1 CANCELLED AT 2026-11-21T15:12:58 DUE TO TIME LIMIT ***",
            "Slurm ended job 7: time limit",
        ),
        (
            "slurmstepd: error: *** STEP 7.1 ON h1 CANCELLED AT 2026-11-21T15:12:58 DUE TO NODE FAILURE, SEE x ***",
            "Slurm ended step 7.1: node failure, see x",
        ),
    ],
)
def test_why_slurm_ended_it_is_said(line: str, cause: str) -> None:
    assert settled(line, "srun: error: h1: tasks 0-1: Terminated").cause == cause


@pytest.mark.parametrize("over", ["", "Slurm ended job 5 (node_fail)"])
def test_a_node_that_fails_is_named_though_slurm_then_ends_the_step(over: str) -> None:
    line = "slurmstepd-h1: error: *** STEP 5.2 ON h1 CANCELLED AT 2026-11-21T15:12:58 DUE TO NODE FAILURE ***"
    run = settled("srun: error: Node failure on h2", line, "srun: error: h1: tasks 0-1: Terminated", over=over)
    assert (run.outcome, run.cause) == (Outcome.KILLED, "h2: Slurm considers it failed")


def test_the_end_of_the_whole_job_goes_before_all() -> None:
    run = settled(STEP, "srun: error: h2: tasks 2-3: Terminated", over="Slurm ended job 5 (preempted)")
    assert (run.outcome, run.cause) == (Outcome.KILLED, "Slurm ended job 5 (preempted)")


def test_a_missing_program_is_named_with_its_nodes_and_how_to_get_it() -> None:
    run = settled(
        "/usr/bin/timeout: failed to run command 'all_reduce_perf': No such file or directory",
        "srun: error: h2: tasks 2-3: Exited with exit code 127",
        "srun: error: h1: tasks 0-1: Exited with exit code 127",
        run=Outcome.EMPTY,
        code=127,
    )
    assert run.cause is not None
    assert run.cause.startswith("h1, h2: all_reduce_perf is not installed: build it in a folder that all nodes share")


def test_a_run_that_ended_well_stays_as_it_is() -> None:
    run = settled("srun: cluster configuration lacks support for cpu binding", run=Outcome.COMPLETE, cause="", code=0)
    assert run.outcome is Outcome.COMPLETE


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "its nodes are in use (Resources)"),
        ("(Priority)", "jobs of a higher priority go first (Priority)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:h3",
            "a node it asks for is down, drained or reserved (ReqNodeNotAvail, UnavailableNodes:h3)",
        ),
        ("QOSGrpCpuLimit", "QOSGrpCpuLimit"),
        ("None", "Slurm has not considered it yet"),
    ],
)
def test_why_a_job_waits_is_said_describe_reason_that_keep_slurms_own(reason: str, words: str) -> None:
    assert describe_reason(reason) == words


def test_hosts_that_are_called_as_other_nodes_are_not_mistaken_for_them() -> None:
    """NodeName and NodeHostname of Slurm may differ: here h1 calls itself h2, and the other way round."""
    ranks = tuple(Rank(number, host, None, None, None) for number, host in enumerate(("h2", "h2", "h1", "h1")))
    run = Run(Outcome.FAILED, "rank 3 on h1: it broke", "all_reduce", (), None, None, ranks)
    ended = outcome.settled(LAUNCH, [run], StepObservations("", 1, (), {}, (), "", 3.0))
    assert ended.run.cause == "rank 3 on h2: it broke"
    assert [rank.host for rank in ended.run.ranks] == ["h1", "h1", "h2", "h2"]
