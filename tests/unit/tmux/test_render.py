"""A version is made of the table of keys, the template and the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.core.settings import Settings
from gpuctl.tmux import render


def test_a_version_has_every_file() -> None:
    rendered = render.files(Settings())
    assert {"tmux.conf", "keybindings.conf", "theme.conf", "cheatsheet.txt", "session.yml"} <= set(rendered)
    assert len([name for name in rendered if name.startswith("scripts/") and name.endswith(".sh")]) == len(rendered) - 5


def test_every_referenced_script_exists() -> None:
    rendered = render.files(Settings())
    text = "".join(rendered.values())
    missing = [
        name for name in rendered if name.startswith("scripts/") and name not in text and Path(name).name not in text
    ]
    assert not missing


@pytest.mark.parametrize("name", ["tmux.conf", "theme.conf", "keybindings.conf"])
def test_a_configuration_has_one_command_a_line(name: str) -> None:
    lines = render.files(Settings())[name].splitlines()
    prefixes = ("#", "set-", "bind-key ", "source-file ", "run-shell -b ")
    assert [line for line in lines if line and not line.startswith(prefixes)] == []
    assert not [line for line in lines if line.endswith("\\")]


def test_the_workspace_is_written_relative_to_the_home() -> None:
    assert "directory: ~/work\n" in render.files(Settings(workspace=Path.home() / "work"))["session.yml"]
    assert "directory: /srv/work\n" in render.files(Settings(workspace=Path("/srv/work")))["session.yml"]
