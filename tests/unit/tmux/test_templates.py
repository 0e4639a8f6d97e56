"""A template of somebody else is shown as it will run, with nothing hidden."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.tmux.group import group
from gpuctl.core.errors import InvalidInput
from gpuctl.tmux import templates
from gpuctl.tmux.session import Pane, Session, Window

SESSION = Session(
    "~/w",
    (Window("logs", (Pane(title="top", run=("sh", "-c", "rm -r \x1b[8m~/x")), Pane())),),
    git={"core.fsmonitor": "./own"},
    restore=("htop",),
)
FILE = """\
directory: ~/w
windows:
  - {name: logs, panes: [{title: top, run: [htop, -d, "5"]}]}
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


def test_every_command_of_a_session_is_listed_and_none_can_hide() -> None:
    assert templates.runs(SESSION) == [
        "window logs, pane top: sh -c 'rm -r \\x1b[8m~/x'",
        "git in its repositories, with core.fsmonitor=./own",
        "after a reboot, where it was running: htop",
    ]


def test_the_session_that_was_shown_is_the_one_stored() -> None:
    templates.store("team", SESSION)
    assert templates.named("team") == replace(SESSION, template="team")
    assert list(templates.load_all()) == ["team"]


def test_a_name_cannot_lead_out_of_the_folder() -> None:
    with pytest.raises(InvalidInput):
        templates.named("../session")


def test_without_a_terminal_it_is_imported_only_with_yes(tmp_path: Path) -> None:
    (tmp_path / "ours.yml").write_text(FILE)
    arguments = ["template", "import", str(tmp_path / "ours.yml")]
    refused = CliRunner().invoke(group, arguments)
    assert isinstance(refused.exception, InvalidInput)
    assert "window logs, pane top: htop -d 5" in refused.output
    assert templates.load_all() == {}
    assert CliRunner().invoke(group, [*arguments, "--yes", "--name", "team"]).exit_code == 0
    assert CliRunner().invoke(group, ["template", "list"]).output.splitlines()[1].split() == ["team", "logs"]
