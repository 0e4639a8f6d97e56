"""Rows that are missing and cells that are no numbers: neither is passed over."""

from __future__ import annotations

import json

import pytest

from gpuctl.nccl import serialize
from gpuctl.nccl.model import NoNumber, Outcome, Run
from gpuctl.nccl.parsing import parse
from tests.rig.nccl.recorded import runs, text

WHOLE = text("h100_1n8g_allreduce.log")
REPORT = json.loads(text("h100_2n16g_allreduce.json"))
HEAD = "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20\n"
HEADING = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
)
SMALL = "     1048576        262144     float     sum      -1    32.51   32.25   56.44       0"
LARGE = "     2097152        524288     float     sum      -1    52.51   39.94   69.89       0"
IN = "    32.10   32.67   57.17       0\n"
SUMMARY = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 56.805 \n"


def one(*lines: str) -> Run:
    (run,) = runs("".join([HEAD, HEADING, *lines, SUMMARY]))
    return run


def test_the_sizes_that_the_heading_announced_are_counted() -> None:
    (run,) = runs(WHOLE)
    assert (run.sizes_announced, len(run.rows)) == (32, 32)
    assert one(SMALL + IN).sizes_announced == 2
    assert runs(json.dumps(REPORT))[0].sizes_announced == 5
    assert runs(text("gb200_excerpt.log"))[0].sizes_announced is None


def test_where_memory_is_short_fewer_sizes_are_announced() -> None:
    said = "#\n# Reducing maxBytes to 1248057066 due to memory limitation\n#\n"
    whole = WHOLE.replace("# Using devices\n", "# Using devices\n" + said)
    assert runs(whole)[0].sizes_announced == 28


def test_a_report_does_not_say_that_memory_was_short_so_its_last_size_tells() -> None:
    short = {**REPORT, "results": REPORT["results"][:3]}
    assert runs(json.dumps(short))[0].sizes_announced == 3
    holed = {**REPORT, "results": [*REPORT["results"][:2], REPORT["results"][4]]}
    assert runs(json.dumps(holed))[0].sizes_announced == 5
    broken_off = {name: value for name, value in short.items() if name in ("config", "results", "args")}
    assert runs(json.dumps(broken_off))[0].sizes_announced == 5


@pytest.mark.parametrize("cell", ["nan", "-nan", "inf", "NaN", "Infinity"])
def test_a_count_of_wrong_values_that_is_no_number_is_corruption(cell: str) -> None:
    run = one(SMALL + IN, LARGE[:-1] + cell + IN)
    assert run.outcome is Outcome.CORRUPT
    assert f"{cell} at 2097152 bytes" in (run.cause or "")
    assert run.rows[1].out_of_place is not None
    assert run.rows[1].out_of_place.wrong is None
    assert run.rows[1].out_of_place.busbw_gbs == 69.89


@pytest.mark.parametrize("cell", ["****", "-", "?"])
def test_a_count_of_wrong_values_that_cannot_be_read_is_not_checked(cell: str) -> None:
    run = one(SMALL + IN, LARGE[:-1] + cell + IN)
    assert run.outcome is Outcome.COMPLETE
    assert run.rows[1].out_of_place is not None
    assert run.rows[1].out_of_place.wrong is None
    assert run.not_numbers == (NoNumber(2097152, "out_of_place", "wrong", cell),)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("    0.00     inf     inf       0", {"algbw_gbs": "inf", "busbw_gbs": "inf"}),
        ("    0.00     nan     nan       0", {"algbw_gbs": "nan", "busbw_gbs": "nan"}),
        ("     nan    -nan    -nan       0", {"time_us": "nan", "algbw_gbs": "-nan", "busbw_gbs": "-nan"}),
    ],
)
def test_a_bandwidth_that_is_no_number_is_no_measurement(cells: str, told: dict[str, str]) -> None:
    run = one(SMALL + IN, LARGE + cells + "\n")
    assert run.rows[1].in_place is None
    assert run.rows[1].out_of_place is not None
    assert {one.column: one.printed for one in run.not_numbers} == told
    assert {(one.size_bytes, one.half) for one in run.not_numbers} == {(2097152, "in_place")}


def test_a_report_says_the_same_of_what_is_no_number() -> None:
    def with_(cell: str, value: object, half: str = "in_place") -> Run:
        rows = [dict(row) for row in REPORT["results"]]
        rows[2] = {**rows[2], half: {**rows[2][half], cell: value}}
        (run,) = runs(json.dumps({**REPORT, "results": rows}))
        return run

    corrupt = with_("nwrong", "nan")
    assert corrupt.outcome is Outcome.CORRUPT
    assert "nan at 4294967296 bytes" in (corrupt.cause or "")
    for value in ("nan", float("nan"), float("inf")):
        slow = with_("bus_bw", value)
        assert slow.rows[2].in_place is None
        assert slow.not_numbers == (NoNumber(4294967296, "in_place", "busbw_gbs", str(value)),)
    assert with_("nwrong", None).not_numbers == (), "null is not checked, as nccl-tests writes it"


def test_a_report_with_the_inf_that_c_prints_is_read() -> None:
    printed = json.dumps(REPORT).replace('"bus_bw": 462.87', '"bus_bw": inf')
    (run,) = runs(printed)
    assert (run.outcome, len(run.rows)) == (Outcome.COMPLETE, 5)
    assert run.not_numbers == (NoNumber(4294967296, "in_place", "busbw_gbs", "inf"),)


def test_what_is_written_as_json_has_no_nan_and_comes_back() -> None:
    for run in (
        one(SMALL + IN, LARGE[:-1] + "nan" + IN),
        one(SMALL + IN, LARGE + "    0.00     inf     inf       0\n"),
    ):
        told = json.loads(json.dumps(serialize.run_as_dict(run), allow_nan=False))
        assert serialize.run_from_dict(told) == run


@pytest.mark.parametrize("dots", ["...", "#  ...", "  [...]", "\u2026", "<snip>", ".  .  ."])
def test_dots_in_the_place_of_lines_are_told_but_not_after_the_summary(dots: str) -> None:
    lines = text("a100_8g_allreduce_old_unchecked.log").splitlines()
    row = next(at for at, line in enumerate(lines) if line.split()[:1] == ["8"])
    (cut,) = parse.runs([*lines[: row + 1], dots, *lines[row + 2 :]])
    assert cut.left_out
    (whole,) = parse.runs([*lines, dots])
    assert not whole.left_out
