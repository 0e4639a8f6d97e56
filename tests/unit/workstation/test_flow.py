"""What is asked of `bootstrap` is refused where it means nothing, and the answer says how it went."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.progress import PIPE, report_progress
from click.testing import CliRunner

from gpuctl.cli.bootstrap import group
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.ansible import HostResult, Play
from gpuctl.edges.ansible_progress import progress_listener
from gpuctl.workstation import flow
from gpuctl.workstation.judge import exit_code, summary
from gpuctl.workstation.model import BootstrapRequest


def never(*_: object) -> None:
    raise AssertionError("nothing may be run")


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuctl.edges.ansible.run", never)


@pytest.mark.parametrize(
    "options", [["--tool", "k9s"], ["--no-packages"], ["--strict"], ["--start-tmux"], ["--no-start-tmux"]]
)
def test_undo_refuses_options_that_it_would_ignore(options: list[str]) -> None:
    result = CliRunner().invoke(group, ["laptop", "--undo", "--yes", *options])
    assert result.exit_code == 2
    assert "--undo" in result.output
    assert options[0].replace("--no-", "").lstrip("-") in result.output


def test_a_requested_tool_counts_as_required() -> None:
    answer = answer_of(k9s=("MISSING", True), jq=("OK", False))
    assert (exit_code(answer, ("k9s",)), exit_code(answer, ("jq",)), exit_code(answer)) == (1, 0, 0)
    assert exit_code(answer, strict=True) == 1


def answer_of(**tools: tuple[str, bool]) -> dict[str, Any]:
    """Name -> state and whether it is optional."""
    rows = [{"tool": name, "state": state, "optional": optional} for name, (state, optional) in tools.items()]
    return {"changed": False, "tools": rows, "files": []}


def test_a_missing_tool_gives_exit_code_1_and_is_in_the_last_line() -> None:
    answer = answer_of(k9s=("MISSING", False), jq=("OK", False))
    answer["tools"].append({"tool": "cursor-agent", "state": "MISSING", "optional": True})
    assert exit_code(answer) == 1
    assert summary(answer) == "nothing to change; missing: k9s, cursor-agent (optional)"
    assert summary({**answer, "changed": True}) == "missing: k9s, cursor-agent (optional)"
    assert summary(answer_of(jq=("OK", False))) == "nothing to change"


def test_a_shell_file_that_cannot_be_written_gives_exit_code_1() -> None:
    answer = {**answer_of(jq=("OK", False)), "files": [{"path": "/home/me/.bashrc", "why": "it cannot be written"}]}
    assert exit_code(answer) == 1
    assert summary(answer) == "not written: /home/me/.bashrc"


class Plays:
    """The variables of every play, each of which succeeds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
        self.variables: list[dict[str, Any]] = []
        self.progress: list[str] = []
        monkeypatch.setenv("GPUCTL_STATE_DIR", str(state))
        for name in ("GPUCTL_TOOLS_BIN", "GPUCTL_TOOLS_FOLDER"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("gpuctl.edges.ansible.run", self.run)

    def run(self, play: Play, on_result: Callable[[HostResult], None], _: object) -> str:
        self.variables.append(dict(play.variables))
        on_result(HostResult("localhost", result=answer_of(jq=("OK", False))))
        return ""

    def chosen(self, **request: Any) -> tuple[Any, ...]:
        """Run once; return what the play was told."""
        flow.bootstrap(BootstrapRequest(**request), self.progress.append)
        return tuple(self.variables[-1][f"workstation_{name}"] for name in ("start_tmux", "packages", "bin"))


def test_choices_are_remembered_until_others_are_made_or_everything_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = Plays(monkeypatch, tmp_path / "state")
    assert plays.chosen() == (False, True, "")
    assert plays.chosen(start_tmux=True, check=True) == (True, True, "")
    assert plays.chosen() == (False, True, "")  # a check decides nothing
    monkeypatch.setenv("GPUCTL_TOOLS_BIN", str(tmp_path))
    assert plays.chosen(start_tmux=True, packages=False) == (True, False, str(tmp_path))
    monkeypatch.delenv("GPUCTL_TOOLS_BIN")
    assert plays.chosen() == (True, False, str(tmp_path))
    assert f"as chosen earlier: --start-tmux, --no-packages, GPUCTL_TOOLS_BIN={tmp_path}" in plays.progress
    assert plays.chosen(start_tmux=False) == (False, False, str(tmp_path))
    assert plays.chosen() == (False, False, str(tmp_path))
    plays.chosen(undo=True)
    assert plays.chosen() == (False, True, "")


def test_damaged_choices_are_reported_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(monkeypatch, tmp_path)
    (tmp_path / "workstation").mkdir()
    (tmp_path / "workstation/choices.json").write_text('{"start_tmux": 1}')
    with pytest.raises(GpuctlError, match=r"choices\.json cannot be read"):
        plays.chosen()
    assert plays.variables == []


def test_a_full_disk_does_not_take_the_result_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays(monkeypatch, tmp_path)
    (tmp_path / "runs").write_text("a file where the folder of the records belongs")
    plays.chosen()
    assert any("this run could not be recorded" in line for line in plays.progress)


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
