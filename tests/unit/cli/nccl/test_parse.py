"""`gpuctl nccl parse`: what it prints and how it ends."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nccl.parse import parse
from gpuctl.core.errors import InvalidInput
from tests.rig.nccl.recorded import DATA, FACTS, text
from tests.unit.nccl.parsing.test_forms import PER_ITERATION

GOOD, BAD = "h100_2n16g_allreduce.log", "gh200_2n2g_allreduce_wrong.log"


def asked(*arguments: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(parse, arguments, input=stdin)


def test_a_complete_run_is_a_table_and_ends_with_0() -> None:
    result = asked(str(DATA / GOOD))
    assert result.exit_code == 0
    assert "8589934592   float  sum    -1    34458        467.41     0" in result.stdout
    assert result.stdout.endswith("complete; best 467.41 GB/s at 8 GiB; average line 460.495 GB/s\n")


def test_an_excerpt_is_told_as_one() -> None:
    result = asked(str(DATA / "gb200_excerpt.log"))
    assert "this is an excerpt: lines are omitted" in result.stdout


def test_every_other_run_ends_with_1_and_says_why() -> None:
    result = asked(str(DATA / BAD))
    assert result.exit_code == 1
    assert "corrupt: wrong values at 4194304, 8388608 bytes" in result.stdout


def test_one_run_is_an_object_and_several_are_a_list() -> None:
    value = json.loads(asked(str(DATA / GOOD), "--output", "json").stdout)
    assert (value["outcome"], value["max_busbw_gbs"], len(value["rows"])) == ("complete", 467.41, 5)
    both = json.loads(asked("-", "--output", "json", stdin=text(GOOD) + text(BAD)).stdout)
    assert [run["outcome"] for run in both] == ["complete", "corrupt"]


def test_several_files_are_told_each_by_its_name() -> None:
    paths = [str(DATA / GOOD), str(DATA / BAD)]
    result = asked(*paths, "--output", "json")
    assert {name: run["outcome"] for name, run in json.loads(result.stdout).items()} == dict(
        zip(paths, ("complete", "corrupt"), strict=True)
    )
    assert result.exit_code == 1
    assert all(f"{path}:" in asked(*paths).stdout for path in paths)


def test_csv_has_a_line_for_each_row_and_one_for_a_run_without_rows() -> None:
    result = asked(str(DATA / BAD), str(DATA / "torch_watchdog.log"), "-o", "csv")
    lines = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(lines) == FACTS[BAD]["rows"] + 1
    assert [line["out_of_place_wrong"] for line in lines if line["size_bytes"] == "4194304"] == ["48.0"]
    assert (lines[-1]["outcome"], lines[-1]["size_bytes"]) == ("hung", "")


def test_the_time_of_each_iteration_is_shown_where_it_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(PER_ITERATION)
    shown = asked(str(path)).stdout
    assert "OUT P99 US  OUT MAX US" in shown
    assert "39.1        39.9" in shown
    assert "P99" not in asked(str(DATA / GOOD)).stdout
    (line,) = csv.DictReader(io.StringIO(asked(str(path), "-o", "csv").stdout))
    assert (line["out_of_place_p99_us"], line["in_place_max_us"], line["in_place_median_us"]) == ("39.1", "38.8", "")


@pytest.mark.parametrize("name", ["nowhere.log", "binary.log", "folder"])
def test_what_is_no_text_is_refused_before_anything_is_printed(tmp_path: Path, name: str) -> None:
    (tmp_path / "binary.log").write_bytes(b"\x7fELF\0\0\0")
    (tmp_path / "folder").mkdir()
    result = asked(str(DATA / GOOD), str(tmp_path / name))
    assert isinstance(result.exception, InvalidInput)
    assert result.exception.exit_code == 2
    assert result.stdout == ""


def test_a_log_that_was_packed_by_gzip_says_the_same_whatever_its_name(tmp_path: Path) -> None:
    packed = tmp_path / "job.log"
    packed.write_bytes(gzip.compress((DATA / GOOD).read_bytes()))
    assert asked(str(packed)).stdout == asked(str(DATA / GOOD)).stdout
    cut, damaged = tmp_path / "cut.log.gz", tmp_path / "damaged.log.gz"
    cut.write_bytes(packed.read_bytes()[:-20])
    damaged.write_bytes(packed.read_bytes()[:40] + b"\0" * 40 + packed.read_bytes()[80:])
    for bad in (cut, damaged):
        refused = asked(str(bad))
        assert isinstance(refused.exception, InvalidInput)
        assert "its gzip data is cut off or damaged" in str(refused.exception)


def test_a_pipe_is_read_from_its_beginning(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    Thread(target=pipe.write_bytes, args=(gzip.compress((DATA / GOOD).read_bytes()),), daemon=True).start()
    assert asked(str(pipe)).stdout == asked(str(DATA / GOOD)).stdout


def test_what_would_change_a_terminal_is_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(text(GOOD).replace("NVIDIA H100", "NVIDIA \x1b[2J\x9b31m\u202eH100"))
    shown = asked(str(path)).stdout
    assert "NVIDIA " in shown
    assert not set("\x1b\x9b\u202e") & set(shown)


def test_bytes_that_are_no_utf8_do_no_harm() -> None:
    assert asked("-", stdin=b"\xff\xfe caf\xe9\n" + text(GOOD).encode()).exit_code == 0


def test_sizes_are_counted_by_operation() -> None:
    lines = text("h100_1n8g_allreduce.log").splitlines(keepends=True)
    rows = [line for line in lines if " float " in line]
    at = lines.index(rows[-1]) + 1
    prod = [line.replace("   sum  ", "  prod  ") for line in rows]
    assert "sizes that the heading announced" not in asked("-", stdin="".join([*lines[:at], *prod, *lines[at:]])).stdout
    cut = asked("-", stdin="".join([*lines[:at], *prod[:3]]))
    assert "3 of the 32 sizes in the heading were measured" in cut.stdout
    assert cut.exit_code == 1


def test_standard_input_may_be_packed_by_gzip_and_is_refused_if_it_is_binary() -> None:
    plain = CliRunner().invoke(parse, ["-", "-o", "json"], input=(DATA / GOOD).read_bytes())
    packed = CliRunner().invoke(parse, ["-", "-o", "json"], input=gzip.compress((DATA / GOOD).read_bytes()))
    assert (packed.exit_code, packed.output) == (0, plain.output)
    refused = CliRunner().invoke(parse, ["-"], input=b"\x7fELF\0\0\0").exception
    assert isinstance(refused, InvalidInput)
    assert "it is binary, not text" in str(refused)
