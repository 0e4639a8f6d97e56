"""What holds for every text: cut anywhere, broken up by other lines, or no log at all."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.domain.findings import Verdict, overall
from gpuctl.nccl import serialize
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.judge.run import judge
from gpuctl.nccl.model import Outcome, Row
from gpuctl.nccl.parsing import parse
from tests.rig.nccl.recorded import FACTS, READABLE, TEXTS, runs, text

WITH_ROWS = [name for name in TEXTS if FACTS[name].get("rows")]
HEADED = [
    "h100_1n8g_allreduce.log",
    "h100_8g_allreduce_tagged.log",
    "a100_8g_alltoall_old_unchecked.log",
    "dgxh100_1n8g_allreduce_full.log",
    "aws_p5_batch_tagged.log",
    "sb_a100_8gpu_alltoall.log",
]
HEADED = [name for name in HEADED if name in READABLE]
WHOLE = text(HEADED[0])
REPORTS = [name for name in READABLE if name.endswith(".json") and FACTS[name].get("rows")]
DEBUG = st.sampled_from(
    (
        "gpu-1-1:662195:662201 [0] NCCL INFO Channel 00/02 : 0 1",
        "MOC-R4PCC04U35:753223:753240 [3] NCCL INFO Channel 01/0 : 1[0] -> 0[0] [send] via NET/IB/1/GDRDMA",
        "node7:99:100 [7] NCCL INFO comm 0x61f87a0 rank 2 nRanks 8 nNodes 2 localRanks 4 localRank 2 MNNVL 0",
        "a0061:570141:570200 [0] NCCL INFO Connected all trees",
        "a0061:570141:570200 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : unable to open device mlx5_1",
        "[2025-03-04 10:11:12] h100-ord01-03-14:1942267:1942300 [0] misc/cudawrap.cc:36 NCCL WARN no symbol",
        "[1622514144.181765] [g0238:96898:0]    ucp_context.c:1437 UCX  WARN  UCP version is incompatible",
    )
)


def _rows(printed: str) -> list[tuple[Row, ...]]:
    return [run.rows for run in runs(printed)]


@settings(max_examples=120, deadline=None)
@given(name=st.sampled_from(sorted(READABLE)), part=st.floats(0, 1))
def test_a_log_that_was_cut_is_not_complete_or_has_the_same_rows(name: str, part: float) -> None:
    printed = text(name)
    found = runs(printed[: int(len(printed) * part)])
    if any(run.outcome is Outcome.COMPLETE for run in found):
        assert [run.rows for run in found] == _rows(printed)


@pytest.mark.parametrize(
    "name",
    [
        "h100_2n16g_allreduce.log",
        "gh200_2n2g_allreduce_wrong.log",
        "oci_h100_2n16g_allreduce.log",
        "gh200_2n2g_slingshot_FAILED_wrong96.log",
    ],
)
def test_so_it_is_wherever_the_end_of_a_log_is_cut(name: str) -> None:
    printed = text(name)
    whole = _rows(printed)
    for end in range(len(printed) - 300, len(printed)):
        found = runs(printed[:end])
        assert all(run.outcome is not Outcome.COMPLETE for run in found) or [run.rows for run in found] == whole
        assert all(row in whole[0] for run in found for row in run.rows)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(REPORTS), part=st.floats(0, 1))
def test_a_report_that_was_cut_keeps_the_rows_that_are_whole(name: str, part: float) -> None:
    printed = text(name)
    (whole,) = runs(printed)
    (cut,) = runs(printed[: int((len(printed) - 1) * part)])
    assert cut.rows == whole.rows[: len(cut.rows)]
    assert cut.outcome is not Outcome.COMPLETE or cut.rows == whole.rows


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(WITH_ROWS), data=st.data())
def test_debug_lines_between_rows_change_no_row(name: str, data: st.DataObject) -> None:
    lines = text(name).splitlines()
    whole = _rows(text(name))
    for at in data.draw(st.lists(st.integers(0, len(lines)), max_size=20)):
        lines.insert(at, data.draw(DEBUG))
    assert _rows("\n".join(lines) + "\n") == whole


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(WITH_ROWS), data=st.data())
def test_debug_lines_inside_a_row_change_no_row(name: str, data: st.DataObject) -> None:
    printed = text(name)
    (run,) = runs(printed)
    lines = printed.splitlines()
    rows = [i for i, line in enumerate(lines) if f" {run.rows[0].type} " in line and line.lstrip()[:1] in "0123456789["]
    at = data.draw(st.sampled_from(rows))
    cut = data.draw(st.integers(lines[at].find(":") + 1, len(lines[at])))
    between = [data.draw(DEBUG) for _ in range(data.draw(st.integers(1, 3)))]
    lines[at : at + 1] = [lines[at][:cut] + between[0], *between[1:], lines[at][cut:]]
    assert _rows("\n".join(lines) + "\n") == [run.rows]


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(HEADED), data=st.data())
def test_tags_in_the_middle_of_a_row_change_no_row(name: str, data: st.DataObject) -> None:
    printed = text(name)
    (run,) = runs(printed)
    lines = [line.removeprefix("[1,0]<stdout>:") for line in printed.splitlines()]
    rows = [i for i, line in enumerate(lines) if " float " in line]
    at = data.draw(st.sampled_from(rows))
    cut = data.draw(st.integers(0, len(lines[at])))
    lines[at] = lines[at][:cut] + "[1,0]<stdout>:" + lines[at][cut:]
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in lines)
    assert _rows(tagged) == [run.rows]


def test_lines_without_their_ends_say_the_same() -> None:
    for name in TEXTS:
        if "_cut_" not in name:
            assert list(parse.runs(text(name).splitlines())) == runs(text(name))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.text(), st.sampled_from(WHOLE.splitlines()), DEBUG)))
def test_no_text_whatever_is_too_much(lines: list[str]) -> None:
    for printed in (lines, [line + "\n" for line in lines]):
        for run in parse.runs(printed):
            assert run.outcome in set(Outcome)


_NAMES = re.findall(
    r"\w+",
    "results config devices size count root out_of_place time alg_bw bus_bw nwrong rank pid args errors nccl_version "
    "out_of_bounds communicators communicators_count ranks",
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(["results", "config", "args", "errors", "nccl_version"]), _VALUES))
def test_no_report_whatever_is_too_much(value: object) -> None:
    for run in runs(json.dumps(value)):
        assert run.outcome in set(Outcome)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(HEADED))
def test_nothing_reaches_a_terminal_but_what_may_be_shown(noise: bytes, name: str) -> None:
    odd = noise.decode(errors="replace").replace("\n", " ").replace("{", " ")
    printed = text(name).replace("NVIDIA H100", f"NVIDIA H100 \x1b[31m{odd}")
    lines = [f"node\x1b]0;x\x07-1:1:2 [0] NCCL WARN Call to ibv_create_qp failed {odd}\n", *printed.splitlines(True)]
    for run in parse.runs(lines):
        shown = [run.cause or "", run.collective or "", *(f"{rank.host}{rank.gpu}" for rank in run.ranks)]
        assert all(letter.isprintable() or letter == "\t" for letter in "".join(shown))


_OPERATIONS = [("float", "sum", -1), ("float", "prod", -1), ("half", "sum", -1), ("half", "sum", 1)]
_SIZES = (1 << 20, 2 << 20, 4 << 20)


def _several(operations: list[tuple[str, str, int]]) -> tuple[str, list[str]]:
    """The heading, and the lines of a sweep of three sizes for each (-o all, -d all)."""
    lines = WHOLE.splitlines(keepends=True)
    heading = "".join(lines[: next(i for i, line in enumerate(lines) if line.lstrip()[:1].isdigit())])
    announced = re.sub(r"minBytes \d+ maxBytes \d+", f"minBytes {_SIZES[0]} maxBytes {_SIZES[-1]}", heading)
    half = f"{100.0:8.2f} {10.49:7.2f} {18.35:7.2f}       0"
    rows = [
        f"{size:12d} {size // (4 if kind == 'float' else 2):12d} {kind:>9} {redop:>7} {root:>6} {half} {half}\n"
        for kind, redop, root in operations
        for size in _SIZES
    ]
    return announced, [*rows, "# Out of bounds values : 0 OK\n", "# Avg bus bandwidth    : 18.35 \n"]


@settings(max_examples=60, deadline=None)
@given(
    operations=st.lists(st.sampled_from(_OPERATIONS), min_size=1, max_size=4, unique=True),
    data=st.data(),
)
def test_a_log_of_several_operations_that_was_cut_is_never_ok(
    operations: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    heading, lines = _several(operations)
    (whole,) = runs(heading + "".join(lines))
    assert (whole.outcome, len(whole.rows)) == (Outcome.COMPLETE, len(operations) * len(_SIZES))
    kept = data.draw(st.integers(0, len(lines) - 3))
    (cut,) = runs(heading + "".join(lines[:kept]))
    found = judge(cut, RunContext(nodes=1), Book({}, ()))
    assert overall([one for one in found if one.check in ("outcome", "corruption")]) is not Verdict.OK
    if kept > len(_SIZES):
        assert cut.outcome is Outcome.TRUNCATED


_MANGLED = st.one_of(
    st.just("1.2.3"),
    st.just("487.265..."),
    st.just("1e5e5"),
    st.just("1e999"),
    st.just("-1"),
    st.just("0"),
    st.just("\u0663"),  # a digit, and none of C's
    st.integers(4300, 6000).map(lambda count: "9" * count),
)


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(READABLE)), by=_MANGLED, data=st.data())
def test_no_number_whatever_is_too_much(name: str, by: str, data: st.DataObject) -> None:
    printed = text(name)
    # Any number of any line; of long logs the numbers of a few lines alone are asked for, so that each has its turn.
    lines = [line for line in printed.splitlines() if re.search(r"\d", line)]
    line = data.draw(st.sampled_from(lines))
    found = data.draw(st.sampled_from(list(re.finditer(r"\d+(?:\.\d+)?", line))))
    odd = line[: found.start()] + by + line[found.end() :]
    _harmless(printed.replace(line, odd, 1))


@pytest.mark.parametrize("by", ["1.2.3", "487.265...", "9" * 5000, "1e999"])
@pytest.mark.parametrize(
    "line",
    [
        "# Avg bus bandwidth    : {}\n",
        "# Out of bounds values : {} FAILED\n",
        "# nccl-tests version 2.1 nccl-headers=1 nccl-library={}\n",
        "# nThread 1 nGpus 1 minBytes {} maxBytes 1048576 step: 2(factor) warmup\n",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes {0} step: {0}(bytes) warmup\n",
        "# Reducing maxBytes to {} due to memory limitation\n",
        "#  Rank {} Group 0 Pid 12 on abc device 0 [0x00] NVIDIA\n",
        "#  Rank 0 Group 0 Pid {0} on abc device {0} [0x00] NVIDIA\n",
        "     {} 262144 float sum -1 100.0 10.49 18.35 0 100.0 10.49 18.35 0\n",
        "     1048576 262144 float sum {} 100.0 10.49 18.35 0 100.0 10.49 18.35 0\n",
        "     1048576 262144 float sum -1 100.0 {0} {0} {0} 100.0 10.49 18.35 0\n",
        "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {} nranks 2 - \n",
        "h:{}:1 [0] NCCL INFO Using network IB\n",
        "h:1:1 [{}] NCCL INFO Using network IB\n",
        "[1,{}]<stdout>: foo\n",
        "srun: error: n1: task {}: Killed\n",
        "MPI_ABORT was invoked on rank {} in communicator\n",
        "h:1:1 [0] NCCL INFO NCCL_ALGO set by environment to {}\n",
        "h:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo {} proto\n",
        '{{"results": [{{"size": {0}, "count": {0}}}], "config": {{"minimum_bytes": 8}}}}\n',
        '{{"results": [{{"size": 8, "type": "float", "out_of_place": {{"time": {0}, "alg_bw": 1, "bus_bw": 1}}}}]}}\n',
        '{{"config": {{"minimum_bytes": 8, "maximum_bytes": {0}, "step_factor": 2}}, "nccl_version": {0}}}\n',
    ],
)
def test_a_number_that_is_none_is_not_there(line: str, by: str) -> None:
    told = line.format(by)
    _harmless(told)
    _harmless(WHOLE.replace("# Using devices\n", f"{told}# Using devices\n"))
    _harmless(WHOLE + told)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["9", "a", " ", "\t", "_a", ".", "[1] ", "1:2 "])
@pytest.mark.parametrize(
    "line", ["{}", "{}]", "[{}", "# {}", "h:{}:1 [0] NCCL INFO Using network IB", "h:1:1 [{}] NCCL INFO Using"]
)
def test_time_grows_with_the_length_of_a_line_not_with_its_square(line: str, piece: str) -> None:
    _harmless(line.format(piece * (200_000 // len(piece))) + "\n")


@pytest.mark.parametrize("digits", [400, 4000])
def test_a_report_with_numbers_that_no_machine_has_is_read(digits: int) -> None:
    _harmless(
        f'{{"results": [{{"size": {"1" * digits}, "in_place": {{"time": {"1" * digits}}}}}],'
        f' "config": {{"minimum_bytes": 1, "maximum_bytes": {"1" * digits}, "step_bytes": 1}}}}\n'
    )


def _harmless(printed: str) -> None:
    for run in runs(printed):
        assert run.outcome in set(Outcome)
        told = serialize.run_as_dict(run)
        assert serialize.run_from_dict(json.loads(json.dumps(told, allow_nan=False))) == run
        judge(run, None, Book({}, ()))
