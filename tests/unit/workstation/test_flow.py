"""What is asked of `bootstrap` is refused where it means nothing, and the answer says how it went."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.progress import PIPE, report_progress
from click.testing import CliRunner

from gpuctl.cli.bootstrap import group
from gpuctl.core.errors import InvalidInput
from gpuctl.edges.ansible_progress import progress_listener
from gpuctl.workstation import flow
from gpuctl.workstation.judge import exit_code
from gpuctl.workstation.model import BootstrapRequest


def never(*_: object) -> None:
    raise AssertionError("nothing may be run")


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuctl.edges.ansible.run", never)


@pytest.mark.parametrize("options", [["--tool", "k9s"], ["--no-packages"], ["--strict"], ["--start-tmux"]])
def test_undo_refuses_options_that_it_would_ignore(options: list[str]) -> None:
    result = CliRunner().invoke(group, ["laptop", "--undo", "--yes", *options])
    assert result.exit_code == 2
    assert "--undo" in result.output
    assert options[0] in result.output


def test_a_requested_tool_counts_as_required() -> None:
    answer: dict[str, Any] = {"tools": [{"tool": "k9s", "state": "MISSING"}, {"tool": "jq", "state": "OK"}]}
    assert (exit_code(answer, ("k9s",)), exit_code(answer, ("jq",)), exit_code(answer)) == (1, 0, 0)


@pytest.mark.parametrize("variable", ["GPUCTL_TOOLS_BIN", "GPUCTL_TOOLS_FOLDER"])
def test_an_unusable_folder_for_tools_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for value, wrong in (
        ("bin", "not an absolute path"),
        (str(file), "not a folder"),
        (f"{file}/below", "not a folder"),
    ):
        monkeypatch.setenv(variable, value)
        with pytest.raises(InvalidInput, match=wrong):
            flow.bootstrap(BootstrapRequest())
    assert list(tmp_path.iterdir()) == [file]


def test_progress_of_the_module_arrives_while_it_runs() -> None:
    heard: list[str] = []
    with progress_listener(heard.append):
        report_progress("k9s: installing")
        report_progress("k9s: installed")
    assert heard == ["k9s: installing", "k9s: installed"]
    assert PIPE not in os.environ
    report_progress("to nobody")
    assert len(heard) == 2
