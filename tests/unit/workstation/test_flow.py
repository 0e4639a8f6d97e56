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


@pytest.mark.parametrize("words", [["--tool", "k9s"], ["--no-packages"], ["--strict"], ["--start-tmux"]])
def test_an_undo_refuses_what_it_would_not_heed(words: list[str]) -> None:
    said = CliRunner().invoke(group, ["laptop", "--undo", "--yes", *words])
    assert said.exit_code == 2
    assert "--undo" in said.output
    assert words[0] in said.output


def test_a_tool_asked_for_by_name_counts() -> None:
    answer: dict[str, Any] = {"tools": [{"tool": "k9s", "state": "MISSING"}, {"tool": "jq", "state": "OK"}]}
    assert (exit_code(answer, ("k9s",)), exit_code(answer, ("jq",)), exit_code(answer)) == (1, 0, 0)


@pytest.mark.parametrize("variable", ["GPUCTL_TOOLS_BIN", "GPUCTL_TOOLS_FOLDER"])
def test_a_folder_for_tools_that_cannot_be_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for given, wrong in (
        ("bin", "not an absolute path"),
        (str(file), "not a folder"),
        (f"{file}/below", "not a folder"),
    ):
        monkeypatch.setenv(variable, given)
        with pytest.raises(InvalidInput, match=wrong):
            flow.bootstrap(BootstrapRequest())
    assert list(tmp_path.iterdir()) == [file]


def test_what_the_module_tells_is_heard_while_it_runs() -> None:
    heard: list[str] = []
    with progress_listener(heard.append):
        report_progress("k9s: installing")
        report_progress("k9s: installed")
    assert heard == ["k9s: installing", "k9s: installed"]
    assert PIPE not in os.environ
    report_progress("to nobody")
    assert len(heard) == 2
