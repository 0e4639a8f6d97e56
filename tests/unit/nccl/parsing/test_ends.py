"""How a run ended, and the first real reason, are told from what ranks, launchers and schedulers print."""

from __future__ import annotations

import pytest

from gpuctl.nccl.model import Outcome, Run
from gpuctl.nccl.parsing import parse
from gpuctl.nccl.parsing.parse import Stopped
from tests.rig.nccl.recorded import runs, text

HUNG = text("h100_2n16g_hang.log")
HEAD = HUNG.replace("alder-11", "node-4").replace("alder-12", "node-5")
ROW = (
    "  1073741824     268435456     float     sum      -1   4485.0  239.41  448.89      0"
    "   4472.6  240.07  450.13      0\n"
)
WHOLE = text("h100_1n8g_allreduce.log")
BANNER = (
    "--------------------------------------------------------------------------\n"
    "Primary job  terminated normally, but 1 process returned\n"
    "a non-zero exit code. Per user-direction, the job has been aborted.\n"
    "--------------------------------------------------------------------------\n"
    "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
    "the job to be terminated. The first process to exit was:\n\n"
    "  Process name: [[40132,1],12]\n  Exit code:    3\n"
)
QP = (
    "node-5:68116:1943600 [4] misc/ibvwrap.cc:214 NCCL WARN "
    "Call to ibv_create_qp failed with error Cannot allocate memory\n"
    "node-5:68116:1943600 [4] NCCL INFO transport/net_ib.cc:820 -> 2\n"
)
TEST = (
    "node-5: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '\n"
    " .. node-5 pid 68116: Test failure common.cu:1189\n"
)


def one(printed: str) -> Run:
    (run,) = runs(printed)
    return run


def test_the_example_of_the_field_names_rank_node_error_and_call() -> None:
    run = one(HEAD + ROW + QP + TEST + BANNER)
    assert run.outcome is Outcome.FAILED
    assert run.cause == (
        "rank 12 on node-5: unhandled system error, Call to ibv_create_qp failed with error Cannot allocate memory"
    )
    assert len(run.rows) == 1


WARNED = "node-5:68116:1943600 [4] init.cc:1234 NCCL WARN Duplicate GPU detected : rank 12 and rank 11 on device 6000\n"
DUPLICATE = "node-5 warned: Duplicate GPU detected : rank 12 and rank 11 on device 6000"


@pytest.mark.parametrize(
    ("printed", "stopped", "cause"),
    [
        (HEAD + ROW, None, "the text ends after 1073741824 bytes; rank 12 on "),
        (HEAD, Stopped.FAILED, "the program ended with an error before the first size; rank 12 on "),
        (HEAD, Stopped.LIMIT, "it stood still before the first size, until its time was over; rank 12 on "),
        (WHOLE, Stopped.FAILED, "every size was measured; then the program ended with an error; "),
    ],
)
def test_a_warning_of_nccl_is_told_where_nothing_else_says_why(
    printed: str, stopped: Stopped | None, cause: str
) -> None:
    (run,) = parse.runs((printed + WARNED).splitlines(keepends=True), stopped)
    assert run.cause == cause + DUPLICATE
    assert run.warning is not None
    assert run.cause.endswith(run.warning)


def test_a_warning_alone_is_told_with_its_node() -> None:
    (run,) = parse.runs([WARNED])
    assert (run.outcome, run.warning) == (Outcome.EMPTY, DUPLICATE)
    assert DUPLICATE in (run.cause or "")


MISMATCH = "Mismatched NCCL version detected : rank 0 version 22304 rank 12 version 22105 signature 1"


@pytest.mark.parametrize("speaker", ["node-5:68116:1943600 [4] init.cc:1234 ", ""])
def test_a_warning_about_versions_is_a_warning(speaker: str) -> None:
    run = one(HEAD + f"{speaker}NCCL WARN {MISMATCH}\n")
    assert (run.outcome, run.versions.nccl) == (Outcome.HUNG, one(HEAD).versions.nccl)
    assert MISMATCH in (run.cause or "")


def test_a_warning_that_a_run_survived_is_no_cause() -> None:
    (run,) = parse.runs((WHOLE + WARNED).splitlines(keepends=True))
    assert (run.outcome, run.cause) == (Outcome.COMPLETE, None)
    assert run.warning is not None
    assert one(HEAD + WARNED + QP + TEST).warning is None


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        (
            "all_reduce_perf: invalid option -- 'I'\ninvalid option 'I'\nUSAGE: all_reduce_perf\n",
            "this build of nccl-tests does not know the option -I",
        ),
        (
            "invalid type f8e4m3, defaulting to float .. \n",
            "this build of nccl-tests has no type f8e4m3, and used float",
        ),
    ],
)
def test_a_build_without_an_option_fails_for_that_reason(printed: str, cause: str) -> None:
    (run,) = parse.runs((printed + WHOLE).splitlines(keepends=True), Stopped.SUCCEEDED)
    assert (run.outcome, run.cause) == (Outcome.FAILED, cause)


def test_what_other_ranks_say_of_the_one_that_left_is_not_the_reason() -> None:
    gone = "node-4: Test NCCL failure common.cu:958 'remote process exited or there was a network error / '\n"
    closed = "node-4:71840:1942300 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer\n"
    assert one(HEAD + closed + gone + QP + TEST + BANNER).cause == one(HEAD + QP + TEST).cause


@pytest.mark.parametrize(
    ("said", "outcome", "cause"),
    [
        ("node-5: Test CUDA failure common.cu:892 'out of memory'\n", "failed", "node-5: CUDA: out of memory"),
        ("node-5: Test timeout (60s) common.cu:410\n", "hung", "node-5: no end within 60 s (Test timeout)"),
        (
            "mpirun noticed that process rank 12 with PID 77 on node node-5 exited on signal 9 (Killed).\n",
            "killed",
            "rank 12 on node-5: ended by signal 9 (Killed)",
        ),
        (
            (
                "prterun noticed that process rank 3 with PID 77 on node node-4 exited on\n"
                "signal 11 (Segmentation fault).\n"
            ),
            "failed",
            "rank 3 on node-4: ended by signal 11 (Segmentation fault)",
        ),
        (
            (
                "PRTE has lost communication with a remote daemon.\n\n"
                "  HNP daemon   : [prterun-a-1@0,0] on node node-4\n"
                "  Remote daemon: [prterun-a-1@0,1] on node node-5\n"
            ),
            "failed",
            "node-5: the node was lost while the test ran",
        ),
        ("srun: error: node-5: task 12: Out Of Memory\n", "killed", "rank 12 on node-5: Out Of Memory"),
        ("srun: error: node-5: tasks 8-15: Killed\n", "killed", "node-5: task 8-15: Killed"),
        (
            "slurmstepd: error: *** STEP 12.0 ON node-5 CANCELLED AT 2025-06-02T10:14:40 DUE TO TIME LIMIT ***\n",
            "killed",
            "node-5: cancelled by Slurm: TIME LIMIT",
        ),
        ("bash: line 1:  4711 Killed                  ./all_reduce_perf -g 8\n", "killed", "killed by signal 9"),
        ("command terminated with exit code 137\n", "killed", "killed (exit code 137)"),
        (BANNER, "failed", "rank 12 on node-5: it was the first to exit with an error"),
        (
            "[1,12]<stderr>:Invalid number of GPUs: 8 requested but only 7 were found.\n",
            "failed",
            "rank 12 on node-5: invalid number of GPUs: 8 requested but only 7 were found.",
        ),
    ],
)
def test_reasons(said: str, outcome: str, cause: str) -> None:
    run = one(HEAD + ROW + said)
    assert (run.outcome, len(run.rows)) == (outcome, 1)
    assert cause in (run.cause or "")


def test_warnings_alone_do_not_fail_a_run_that_ended() -> None:
    warned = "alder-03:1006102:1006200 [0] misc/cudawrap.cc:36 NCCL WARN Cuda failure 'peer access already enabled'\n"
    lines = WHOLE.splitlines(keepends=True)
    assert one("".join([*lines[:20], warned, *lines[20:]])).outcome is Outcome.COMPLETE


def test_a_run_that_printed_its_summary_and_then_crashed_did_not_end_well() -> None:
    crashed = "mpirun noticed that process rank 2 with PID 9 on node n exited on signal 11 (Segmentation fault).\n"
    run = one(WHOLE + crashed)
    assert run.outcome is Outcome.FAILED
    assert "rank 2 on n" in (run.cause or "")


def test_all_sizes_without_a_summary_are_a_complete_run_and_all_but_one_are_not() -> None:
    rows = WHOLE[: WHOLE.index("# Out of bounds")]
    assert one(rows).outcome is Outcome.COMPLETE
    assert one(rows).avg_busbw_gbs is None
    cut = one(rows[: rows.rstrip("\n").rindex("\n") + 1])
    assert (cut.outcome, len(cut.rows)) == (Outcome.TRUNCATED, 31)


@pytest.mark.parametrize(
    ("stopped", "outcome"),
    [
        (None, "truncated"),
        (Stopped.SUCCEEDED, "truncated"),
        (Stopped.FAILED, "failed"),
        (Stopped.KILLED, "killed"),
        (Stopped.LIMIT, "hung"),
    ],
)
def test_what_the_runner_knows_tells_a_hang_from_a_cut_log(stopped: Stopped | None, outcome: str) -> None:
    (run,) = parse.runs((HEAD + ROW).splitlines(keepends=True), stopped)
    assert run.outcome == outcome
    assert "after 1073741824 bytes" in (run.cause or "")


def test_what_was_printed_of_a_reason_goes_before_what_the_runner_did() -> None:
    (run,) = parse.runs((HEAD + ROW + QP).splitlines(keepends=True), Stopped.KILLED)
    assert run.cause is not None
    assert run.cause.startswith("rank 12 on node-5: Call to ibv_create_qp failed")


def test_comments_that_tell_of_crashes_are_no_reason() -> None:
    assert one("# the container was Killed: Out of memory\n# Segmentation fault\n").outcome is Outcome.EMPTY


def test_nothing_at_all_is_empty() -> None:
    assert one("").outcome is Outcome.EMPTY
    assert one("\n\n").outcome is Outcome.EMPTY


def test_of_several_operations_only_the_summary_tells_that_all_are_there() -> None:
    head, rows = WHOLE[: WHOLE.index("# Out of bounds")], WHOLE[WHOLE.index("           8   ") :]
    prod = rows[: rows.index("# Out of bounds")].replace("   sum  ", "  prod  ")
    assert one(head + prod + rows[rows.index("# Out of bounds") :]).outcome is Outcome.COMPLETE
    both = one(head + prod)
    assert (both.outcome, len(both.rows)) == (Outcome.TRUNCATED, 64)
    begun = one(head + prod[: prod.index("\n") + 1])
    assert (begun.outcome, begun.cause) == (
        Outcome.TRUNCATED,
        "the text ends after 8 bytes of float prod, 1 of 32 sizes; the output gives no cause",
    )


# nccl-tests prints a row in pieces, without line ends: what a launcher or another rank prints then stands right behind.
PIECES = (
    "  2147483648     536870912     float     sum      -1",
    "  2147483648     536870912     float     sum      -1   8485.0  253.09  474.55      0",
    "  2147483648     536870912     float     sum      -1\n   8485.0  253.09  474.55      0",
)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(
    "reason",
    [
        TEST,
        "node-5: Test CUDA failure common.cu:892 'out of memory'\n",
        "node-5: Test timeout (60s) common.cu:410\n",
        "bash: line 1:  4711 Killed                  ./all_reduce_perf -g 8\n",
        "srun: error: node-5: task 12: Out Of Memory\n",
        "mpirun noticed that process rank 12 with PID 77 on node node-5 exited on signal 9 (Killed).\n",
    ],
)
def test_a_reason_right_behind_a_broken_row_is_read_like_one_on_a_line_of_its_own(piece: str, reason: str) -> None:
    run, alone = one(HEAD + ROW + piece + reason), one(HEAD + ROW + reason)
    assert (run.outcome, run.cause, run.rows) == (alone.outcome, alone.cause, alone.rows)


def test_a_row_goes_on_behind_other_output() -> None:
    warned = "Warning: Permanently added 'node-5' (ED25519) to the list of known hosts.\n"
    begin, end = ROW[:54], ROW[54:]
    assert one(HEAD + begin + warned + end).rows == one(HEAD + ROW).rows
