"""Logs as collectors hand them out: the same run, whatever stands in front of its lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuctl.nccl.parsing import parse
from tests.rig.nccl import recorded

NAMES = (
    "h100_1n8g_allreduce.log",
    "h100_2n2g_roce_info.log",
    "h100_2n16g_allreduce.log",
    "dgxh100_1n8g_allreduce_full.log",
    "moc_h100_roce_2n2g_allreduce_ncclinfo.log",
    "oci_h100_2n16g_allreduce.log",
)
STAMP = "2026-11-23T10:17:22.123456789Z"


def docker(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stdout", "time": STAMP})


def docker_in_parts(line: str) -> str:
    if line.startswith("# n"):  # Docker cuts after 16 KiB, so that a first line is whole
        return docker(line)
    half = len(line) // 2
    first = json.dumps({"log": line[:half], "stream": "stdout", "time": STAMP})
    return first + "\n" + json.dumps({"log": line[half:] + "\n", "stream": "stdout", "time": STAMP})


def cri_in_parts(line: str) -> str:
    half = len(line) // 2
    return f"{STAMP} stdout P {line[:half]}\n{STAMP} stdout F {line[half:]}"


FORMS: dict[str, Callable[[str], str]] = {
    "kubectl --timestamps": lambda line: f"{STAMP} {line}",
    "kubectl --timestamps --prefix": lambda line: f"[pod/nccl-launcher-x7/launcher] {STAMP} {line}",
    "journald short": lambda line: f"Nov  3 10:17:22 node-1 all_reduce_perf[4711]: {line}",
    "journald short-iso": lambda line: f"2026-11-23T10:17:22+0000 node-1 bash[4711]: {line}",
    "stern": lambda line: f"nccl-launcher-x7 launcher {line}",
    "stern --timestamps": lambda line: f"nccl-launcher-x7 launcher {STAMP} {line}",
    "stern in colour": lambda line: f"\x1b[92mnccl-launcher-x7\x1b[0m \x1b[96mlauncher\x1b[0m {line}",
    "stern -o json": lambda line: json.dumps({"message": line, "podName": "nccl-launcher-x7"}),
    "docker compose": lambda line: f"nccl-1  | {line}",
    "aws logs tail": lambda line: f"2026-11-23T10:17:22.123000+00:00 nccl/default/0a1b2c {line}",
    "journald json": lambda line: json.dumps({"__REALTIME_TIMESTAMP": "1", "MESSAGE": line}),
    "journald short-full": lambda line: f"Mon 2026-11-23 10:17:22 UTC node-1 bash[4711]: {line}",
    "journald short-unix": lambda line: f"1763893042.123456 node-1 bash[4711]: {line}",
    "journald short-monotonic": lambda line: f"[ 1234.567890] node-1 bash[4711]: {line}",
    "ts": lambda line: f"Nov 23 10:17:2{len(line) % 10} {line}",
    "ts -s": lambda line: f"00:01:2{len(line) % 10} {line}",
    "ts, in brackets": lambda line: f"[2026-11-23 10:17:2{len(line) % 10}] {line}",
    "mpirun --timestamp-output": lambda line: f"Mon Nov 23 10:17:2{len(line) % 10} 2026<stdout>:{line}",
    "mpirun --timestamp-output --tag-output": lambda line: f"Mon Nov 23 10:17:22 2026[1,0]<stdout>:{line}",
    "torchrun": lambda line: f"[default{len(line) % 8}]:{line}",
    "syslog": lambda line: f"<14>1 2026-11-23T10:17:22.1Z node-1 all_reduce_perf 4711 - - {line}",
    "docker": docker,
    "docker, long lines in parts": docker_in_parts,
    "containerd": lambda line: f"{STAMP} stdout F {line}",
    "containerd, long lines in parts": cri_in_parts,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_a_log_with_prefixes_reads_like_the_log_itself(name: str, form: str) -> None:
    lines = [line for line in recorded.text(name).splitlines() if line.strip()]
    # prefixes without a form of their own are known from the first line of nccl-tests on
    del lines[: next(number for number, line in enumerate(lines) if line.startswith(("# n", "# Using")))]
    plain = list(parse.runs(f"{line}\n" for line in lines))
    text = "\n".join(FORMS[form](line) for line in lines)
    read = list(parse.runs(text.splitlines(keepends=True)))
    assert [replace(run, cause=None, origin=None) for run in read] == [replace(run, cause=None) for run in plain]
    assert read[0].rows


def test_text_before_the_first_words_of_nccl_tests_is_no_prefix_of_other_lines() -> None:
    plain = recorded.text("h100_2n2g_roce_info.log").splitlines(keepends=True)
    glued = ["node-3:41:41 [0] NCCL INFO Bootstrap: Using eth0# Using devices\n", *plain]
    assert [run.rows for run in parse.runs(glued)][-1] == next(parse.runs(plain)).rows


def test_the_label_of_srun_still_tells_the_rank() -> None:
    lines = [f"0: {line}\n" for line in recorded.text("h100_2n16g_hang.log").splitlines()]
    failure = "7: CUDA: Test CUDA failure common.cu:958 'out of memory'\n"
    labelled = "7: node-1:41:41 [0] misc/ibvwrap.cc:214 NCCL WARN Call to ibv_create_qp failed with error 12\n"
    (run,) = parse.runs([*lines, labelled, failure])
    assert (run.cause or "").startswith("rank 7 on ")


def test_a_daemon_in_the_journal_keeps_its_name() -> None:
    line = "Nov 23 10:17:22 node-1 slurmstepd[88]: error: *** JOB 7 ON node-1 CANCELLED AT 2026 DUE TO TIME LIMIT ***"
    (run,) = parse.runs([line + "\n"])
    assert "TIME LIMIT" in (run.cause or "")


def test_a_host_is_one_of_the_rank_list_even_where_its_name_is_glued_to_other_text() -> None:
    text = (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
        "# Using devicesnode-3:41:41 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.3<0>\n"
        "#  Rank  0 Group  0 Pid     41 on     node-3 device  0 [0000:19:00] NVIDIA H100\n"
        "#  Rank  1 Group  0 Pid     42 on     node-4 device  0 [0000:19:00] NVIDIA H100\n"
        "node-3:41:41 [0] NCCL INFO Using network IB\n"
        "node-4:42:42 [0] NCCL INFO Using network IB\n"
    )
    (run,) = parse.runs(text.splitlines(keepends=True))
    assert {one.host for one in run.transports} <= {"node-3", "node-4"}


@pytest.mark.parametrize("glued", [0, 1])
def test_a_rank_whose_line_has_a_message_behind_it_is_listed_as_are_its_neighbours(glued: int) -> None:
    ranks = [
        "#  Rank  0 Group  0 Pid     41 on     node-3 device  0 [0000:19:00] NVIDIA H100 80GB HBM3",
        "#  Rank  1 Group  0 Pid     42 on     node-4 device  0 [0000:19:00] NVIDIA H100 80GB HBM3",
    ]
    ranks[glued] += "node-3:41:41 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.3<0>"
    head = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n# Using devices\n"
    (run,) = parse.runs((head + "\n".join(ranks) + "\n#\n").splitlines(keepends=True))
    assert [(rank.rank, rank.host) for rank in run.ranks] == [(0, "node-3"), (1, "node-4")]


def test_messages_of_two_ranks_on_one_line_are_two_messages() -> None:
    lines = recorded.text("moc_h100_roce_2n8g_sendrecv_ncclinfo.log").splitlines(keepends=True)
    (plain,) = parse.runs(lines)
    said = [number for number, line in enumerate(lines) if " NCCL INFO " in line]
    for number in said[:-1]:
        glued = [line.rstrip("\n") if at == number else line for at, line in enumerate(lines)]
        (run,) = parse.runs("".join(glued).splitlines(keepends=True))
        assert run.transports == plain.transports, lines[number]


def test_a_message_behind_one_of_no_interest_is_read() -> None:
    head = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n# Using devices\n"
    ranks = "".join(
        f"#  Rank  {number} Group  0 Pid     41 on     node-{number} device  0 [0000:19:00] NVIDIA H100 80GB HBM3\n"
        for number in range(2)
    )
    said = "node-0:41:41 [0] NCCL INFO cudaDriverVersion 12040node-1:41:41 [0] NCCL INFO Using network Socket\n"
    said += "node-0:41:41 [0] NCCL INFO Channel 00/02 :    0   1node-1:41:41 [0] init.cc:7 NCCL WARN Cuda failure 'x'\n"
    (run,) = parse.runs((head + ranks + said).splitlines(keepends=True))
    assert [(one.host, one.network) for one in run.transports] == [("node-1", "Socket")]
    assert "node-1: Cuda failure" in (run.cause or "")
