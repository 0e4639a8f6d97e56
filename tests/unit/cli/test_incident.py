"""gpuctl incident read: files, standard input, formats and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.incident.group import incident
from gpuctl.core.errors import InvalidInput

LINES = "step 1\n[rank3]: ValueError: bad\x1b[31m\n[rank1]: Broken pipe\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "job.log").write_text(LINES)
    return tmp_path / "job.log"


def run(*words: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(incident, ["read", *map(str, words)], input=stdin)


def test_the_first_failure_is_shown_with_its_lines_and_without_escape_sequences(log: Path) -> None:
    result = run(log, "--around", "1")
    assert result.exit_code == 1
    assert "rank 3: exception, line 2: ValueError: bad" in result.output
    assert "  step 1\n" in result.output
    assert "\x1b" not in result.output


def test_several_logs_are_judged_each_for_itself(log: Path, tmp_path: Path) -> None:
    (tmp_path / "fine.log").write_text("step 1\n")
    result = run(log, tmp_path / "fine.log", "-o", "json")
    findings = json.loads(result.output)["findings"]
    assert [(Path(one["target"]).name, one["verdict"]) for one in findings] == [
        ("job.log", "FAIL"), ("job.log", "OK"), ("fine.log", "UNKNOWN")
    ]  # fmt: skip
    assert f"{log}:" in run(log, tmp_path / "fine.log").output


def test_standard_input_and_bytes_that_are_no_text_are_read() -> None:
    assert "rank 3: exception" in run("-", stdin=LINES).output
    assert run("-").exit_code == 1
    assert "the log is empty" in run("-").output


def test_lines_around_a_failure_need_a_file() -> None:
    result = run("-", "--around", "3", stdin=LINES)
    assert isinstance(result.exception, InvalidInput)
    assert "standard input is read once" in str(result.exception)


@pytest.mark.parametrize("name", ["none.log", "."])
def test_what_cannot_be_read_is_an_error(name: str, tmp_path: Path) -> None:
    result = run(tmp_path / name)
    assert isinstance(result.exception, InvalidInput)
    assert "cannot read the log" in str(result.exception) or "read the log" in str(result.exception)
