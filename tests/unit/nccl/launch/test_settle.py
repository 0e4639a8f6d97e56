"""What a launch came to, from its text and from how the programs around it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpuctl.domain.ranks import Process
from gpuctl.edges.ssh import Failure
from gpuctl.nccl.isolate.launch_failures import never_started
from gpuctl.nccl.launch import outcome
from gpuctl.nccl.launch.outcome import ProgramEnd
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Sweep
from gpuctl.nccl.parsing import parse

LAUNCH = Launch(("gpu-a", "gpu-b"), Sweep(gpus_per_node=1, limit_s=60))
TEXT = """# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid 574691 on MOC-R4PCC04U37 device  0 [0000:06:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 753223 on MOC-R4PCC04U35 device  0 [0000:06:00] NVIDIA H100 80GB HBM3
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROW = "  1073741824     268435456     float     sum      -1    71024   15.12   15.12      0    70967   15.13   15.13  0"
TAIL = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 15.125\n#\n"
WHOLE = f"{TEXT}{ROW}\n{TAIL}"


def end(answer: dict[str, Any] | None = None, last: Sequence[str] = (), **more: Any) -> ProgramEnd:
    own: dict[str, Any] = {"stop": "", "ssh": None, "looks": {}, "lost": (), "done_size": ""}
    return ProgramEnd(answer=answer, last=last, hosts=("10.0.0.1", "10.0.0.2"), **{**own, **more})


def settled(text: str, how: ProgramEnd) -> LaunchResult:
    return outcome.settle(LAUNCH, list(parse.runs(text.splitlines())), how, 5.0)


def test_a_whole_run_is_complete_and_called_by_our_names() -> None:
    ended = settled(WHOLE, end({"code": 0}))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.COMPLETE, None)
    assert [rank.host for rank in ended.run.ranks] == ["gpu-a", "gpu-b"]


def test_a_run_whose_mpirun_failed_did_not_end_well() -> None:
    ended = settled(WHOLE, end({"code": 1}))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.FAILED, "it ended with exit status 1")


@pytest.mark.parametrize("stop", ["", "limit"])
def test_what_tells_nothing_of_the_nodes_is_no_test_that_began_and_failed(stop: str) -> None:
    ended = settled(f"{TEXT}{ROW}\n", end(stop=stop, unknown="the connection broke", lost=("gpu-b",)))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.EMPTY, "not known: the connection broke")
    assert (ended.run.ranks, ended.run.rows, ended.lost) == ((), (), ("gpu-b",))
    assert never_started(ended)


def test_a_hang_says_who_waits_by_our_names() -> None:
    look = {
        "gpu-a": [Process(1, "all_reduce_perf", "R", 0, False)],
        "gpu-b": [Process(1, "all_reduce_perf", "S", 1, True)],
    }
    ended = settled(TEXT, end(stop="limit", looks=look, done_size="512M", lost=("gpu-b",)))
    assert ended.run.outcome is Outcome.HUNG
    assert ended.run.cause == "no end within 60 s, after 512M: on gpu-b rank 1 is doing nothing; gpu-a waits for it"
    assert (ended.waiting, ended.lost) == ({"gpu-a": "waiting", "gpu-b": "gone"}, ("gpu-b",))


def test_a_warning_of_nccl_is_the_cause_where_there_is_no_other() -> None:
    warning = "MOC-R4PCC04U35:753223:9 [0] init.cc:9 NCCL WARN Duplicate GPU detected : rank 1 and rank 0\n"
    told = "rank 1 on gpu-b warned: Duplicate GPU detected : rank 1 and rank 0"
    assert settled(TEXT + warning, end({"code": 3})).run.cause == told
    assert (settled(TEXT + warning, end(stop="limit", done_size="")).run.cause or "").endswith(f"({told})")


def test_what_we_ended_ourselves_is_killed() -> None:
    ended = settled(TEXT, end(stop="broken off"))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.KILLED, "broken off")


def test_the_first_node_that_cannot_be_entered_is_named() -> None:
    ended = settled("", end(ssh=Failure("it does not let us log in (Permission denied)")))
    assert ended.run.cause == "gpu-a: it does not let us log in (Permission denied)"


@pytest.mark.parametrize("missing", ["all_reduce_perf", "mpirun"])
def test_what_is_missing_is_said_with_how_to_get_it(missing: str) -> None:
    ended = settled("", end({"missing": missing}))
    assert ended.run.outcome is Outcome.FAILED
    assert ended.run.cause is not None
    assert ended.run.cause.startswith("gpu-a: ")
    assert "install openmpi-bin" in ended.run.cause or "make MPI=1" in ended.run.cause


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("root@10.0.0.2: Permission denied (publickey).", "gpu-b: the first node may not log in there over ssh"),
        ("  Remote daemon: [[26316,0],1] on node gpu-b", "gpu-b: it was lost while the test ran"),
        (
            "ssh: connect to host 10.0.0.2 port 22: No route to host",
            "gpu-b: the first node cannot reach it over ssh (No route to host)",
        ),
        ("bash: line 1: orted: command not found", "Open MPI is not installed, or not on the PATH, on another node"),
        (
            "timeout: failed to run command \u2018/opt/x/all_reduce_perf\u2019: No such file or directory",
            "/opt/x/all_reduce_perf is not on every node, in the same place",
        ),
        ("Host key verification failed.", "the first node does not know the host key of another"),
    ],
)
def test_what_mpirun_and_ssh_say_becomes_a_cause(line: str, cause: str) -> None:
    ended = settled("", end({"code": 1}, last=[line]))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.FAILED, cause)


FRAME = "-" * 74
SLOTS = f"""{FRAME}
There are not enough slots available in the system to satisfy the 4
slots that were requested by the application:

  all_reduce_perf

Either request fewer slots for your application, or make more slots
available for use.
{FRAME}"""
NO_PROGRAM = f"""{FRAME}
mpirun was unable to launch the specified application as it could not access
or execute an executable:

Executable: /no/such/prog
Node: vm

while attempting to start process rank 0.
{FRAME}"""
OPTION = """mpirun: Error: unknown option "--nosuchopt"
Type 'mpirun --help' for usage."""
RESOLVE = f"""ssh: Could not resolve hostname node-x: Name or service not known
{FRAME}
ORTE was unable to reliably start one or more daemons.
This usually is caused by:
{FRAME}"""
WARNED = f"""Warning: Permanently added '10.0.0.2' (ED25519) to the list of known hosts.
{FRAME}
WARNING: There was an error initializing an OpenFabrics device.

  Local host: gpu-b
{FRAME}
[gpu-b:77] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2193"""
LIBRARY = f"""all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file
{FRAME}
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
{FRAME}"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        pytest.param(SLOTS, "mpirun finds too few places for the ranks", id="slots"),
        pytest.param(
            NO_PROGRAM,
            "mpirun was unable to launch the specified application as it could not access or execute an executable: "
            "Executable: /no/such/prog Node: vm",
            id="no program",
        ),
        pytest.param(OPTION, 'mpirun: Error: unknown option "--nosuchopt"', id="option"),
        pytest.param(RESOLVE, "node-x: the first node cannot resolve its name", id="resolve"),
        pytest.param(
            WARNED, "[gpu-b:77] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2193", id="warned"
        ),
        pytest.param(LIBRARY, LIBRARY.splitlines()[0], id="library"),
        pytest.param(
            "env: \u2018orted\u2019: No such file or directory",
            "Open MPI is not installed, or not on the PATH, on another node",
            id="env",
        ),
        pytest.param(
            "bash: line 1: numactl: command not found",
            "numactl is not installed, or not on the PATH, on one of the nodes",
            id="shell",
        ),
    ],
)
def test_the_first_real_error_is_the_cause_where_no_test_began(text: str, cause: str) -> None:
    ended = settled(text, end({"code": 1}, last=text.splitlines()))
    assert (ended.run.outcome, ended.run.cause) == (Outcome.FAILED, cause)


def test_a_hang_before_any_test_began_tells_what_ssh_said() -> None:
    said_by_ssh = "ssh: connect to host 10.0.0.2 port 22: Connection timed out"
    ended = settled("", end(stop="limit", looks={"gpu-a": [], "gpu-b": []}, last=[said_by_ssh]))
    assert ended.run.cause == (
        "no end within 60 s, before the first size: no rank had started "
        "(gpu-b: the first node cannot reach it over ssh (Connection timed out))"
    )


def test_a_row_counts_as_done_only_when_it_is_whole() -> None:
    assert outcome.size_of_row(ROW) == "1G"
    assert outcome.size_of_row("  1073741824     268435456     float     sum      -1") is None
    assert outcome.size_of_row("#       size         count      type   redop") is None


def test_the_words_for_an_end_hold_the_best_speed_and_the_cause() -> None:
    ended = settled(WHOLE, end({"code": 0}))
    assert outcome.summary_line(ended) == "complete after 5.0 s, best 15.1 GB/s at 1 GiB"
    bad = replace(ended, run=replace(ended.run, outcome=Outcome.FAILED, cause="it fell", rows=()))
    assert outcome.summary_line(bad) == "failed after 5.0 s: it fell"
