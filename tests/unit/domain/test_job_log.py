"""The first failure of a job is named with its rank and node, and is told apart from what only followed."""

from __future__ import annotations

import pytest

from gpuctl.domain import job_log
from gpuctl.domain.findings import Verdict
from gpuctl.domain.job_log import JobFailure

TORCHRUN = """\
[rank12]: Traceback (most recent call last):
[rank12]:   File "/workspace/train.py", line 5, in <module>
[rank12]: RuntimeError: CUDA error: uncorrectable ECC error encountered
[rank3]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970
[rank3]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
[rank4]: RuntimeError: Connection reset by peer
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_09:15:12
  host      : gpu-2.lab
  rank      : 12 (local_rank: 4)
  exitcode  : 1 (pid: 4733)
""".splitlines()


def first(*lines: str) -> JobFailure:
    found = job_log.read(lines).first
    assert found is not None
    return found


def test_the_cause_is_named_with_the_node_that_torchrun_reports() -> None:
    log = job_log.read(TORCHRUN)
    assert log.first == JobFailure(
        3,
        "uncorrectable memory error",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        12,
        "gpu-2.lab",
    )
    cause, followed = job_log.judge(log)
    assert (cause.subject, cause.verdict) == ("rank 12 on gpu-2.lab", Verdict.FAIL)
    assert "--limit gpu-2.lab" in cause.hint
    assert followed.verdict is Verdict.OK
    assert "rank 3, rank 4" in followed.message


@pytest.mark.parametrize(
    ("line", "rank", "node", "kind"),
    [
        ("37: Fatal Python error: Segmentation fault", 37, "", "crash"),
        ("[1,5]<stderr>:RuntimeError: CUDA out of memory. Tried to allocate 20 MiB", 5, "", "GPU memory full"),
        ("[pod/trainer-3/main] [rank7]: OSError: [Errno 28] No space left on device", 7, "trainer-3", "disk full"),
        ("trainer-0 main | ValueError: bad shape", None, "trainer-0", "exception"),
        ("gpu-4:813:901 [2] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed", None, "gpu-4", "NCCL warning"),
        ("srun: error: gpu-9: task 71: Segmentation fault (core dumped)", 71, "gpu-9", "srun: Segmentation fault"),
        ("srun: error: gpu-9: tasks 8-9: Out Of Memory", 8, "gpu-9", "srun: Out Of Memory"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", None, "", "host memory full"),
        (
            "slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***",
            None,
            "",
            "time limit",
        ),
        ("kernel: NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.", None, "", "Xid"),
        ("[rank2]: OSError: [Errno 116] Stale file handle: '/fsx/ckpt'", 2, "", "stale file system"),
    ],
)
def test_labels_of_launchers_give_rank_and_node(line: str, rank: int | None, node: str, kind: str) -> None:
    found = first("step 1 loss 2.5", line)
    assert (found.rank, found.node, found.kind, found.line) == (rank, node, kind, 2)


def test_a_column_of_a_table_is_no_pod_and_an_interrupt_no_fault_of_the_program() -> None:
    assert first("epoch 1 | CUDA error: unspecified launch failure").node == ""
    assert first("[rank0]: KeyboardInterrupt").kind == "cancelled"


def test_a_rank_that_lost_another_one_is_no_cause_though_it_printed_first() -> None:
    found = first("[rank0]: RuntimeError: Connection closed by peer [10.0.0.7]:4242", "[rank9]: KeyError: 'loss'")
    assert (found.rank, found.kind) == (9, "exception")


def test_where_all_wait_the_ranks_that_printed_nothing_are_named() -> None:
    timeouts = [
        f"[rank{rank}]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600000 milliseconds"
        for rank in range(16)
        if rank != 11
    ]
    (finding,) = job_log.judge(job_log.read(timeouts))
    assert finding.verdict is Verdict.FAIL
    assert "rank 11 printed nothing before it ended or hung" in finding.message


def test_where_too_many_printed_nothing_nobody_is_named() -> None:
    (finding,) = job_log.judge(job_log.read(["[rank63]: Broken pipe"]))
    assert "the rank that it lost printed nothing" in finding.message


def test_a_log_without_a_known_failure_proves_nothing() -> None:
    (finding,) = job_log.judge(job_log.read(["step 1 loss 2.5", "Errors: none", "errors.max: 0"]))
    assert finding.verdict is Verdict.UNKNOWN
    assert "in 2 lines" not in finding.message
    assert "in 3 lines" in finding.message
    (empty,) = job_log.judge(job_log.read([]))
    assert "the log is empty" in empty.message


def test_torchruns_verdict_counts_where_no_line_of_the_rank_is_known() -> None:
    found = first(*TORCHRUN[6:])
    assert (found.rank, found.node, found.source) == (12, "gpu-2.lab", "torchrun")


def test_further_failures_are_warnings_and_those_of_the_same_rank_are_one() -> None:
    findings = job_log.judge(
        job_log.read(["[rank1]: KeyError: 'a'", "[rank1]: ValueError: b", "[rank2]: KeyError: 'a'"])
    )
    assert [(one.subject, one.verdict) for one in findings] == [("rank 1", Verdict.FAIL), ("rank 2", Verdict.WARN)]


def test_any_range_of_srun_is_read_without_an_error() -> None:
    for text in ("3,5-7", "9-", "-", "0-999999999"):
        assert len(job_log.read([f"srun: error: n: tasks {text}: Killed"]).failures) <= 4097


def test_the_lines_around_a_failure_stay_within_the_log() -> None:
    assert job_log.around(TORCHRUN, first(*TORCHRUN), 1) == TORCHRUN[1:4]
    assert job_log.around(["ValueError: a"], first("ValueError: a"), 5) == ["ValueError: a"]
