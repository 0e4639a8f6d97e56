"""The shell files of one visit: which they are, what undo puts back, and what is told where one cannot be written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.model import WorkstationError
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.run import run
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.shell import BEGIN, END


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("ZDOTDIR", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return folder


def run_laptop(home: Path, *, check: bool = False, **request: Any) -> dict[str, Any]:
    empty = {"tools": [], "only": [], "remove": [], "mirror": "", "packages": False, "shell": True, "gpuctl": ""}
    flags = {"start_tmux": False, "strict": False, "undo": False, "force": False}
    places = {"bin": str(home / ".local/bin"), "folder": str(home / "tools"), "state": str(home / ".local/state")}
    return run({**empty, **flags, **places, **request}, check)


def test_the_files_of_fish_are_written_where_it_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert not any(row["path"].endswith("config.fish") for row in run_laptop(home)["files"])
    (home / ".config/fish").mkdir(parents=True)
    run_laptop(home)
    assert (home / ".config/fish/config.fish").read_text().startswith(BEGIN)
    run_laptop(home, undo=True)
    assert not (home / ".config/fish/config.fish").exists()


def test_undo_restores_the_users_lines_after_both_wrote_twice(home: Path) -> None:
    bashrc = home / ".bashrc"
    bashrc.write_text("mine\n")
    run_laptop(home)
    bashrc.write_text(bashrc.read_text() + "mine, too\n")
    run_laptop(home, start_tmux=True)
    assert [row["state"] for row in run_laptop(home, undo=True)["undone"]] == ["RESTORED"]
    assert bashrc.read_text() == "mine\nmine, too\n"


def test_undo_removes_a_file_that_only_gpuctl_wrote_even_with_another_mode(home: Path) -> None:
    bashrc = home / ".bashrc"
    run_laptop(home)
    assert bashrc.read_text().startswith(BEGIN)
    bashrc.chmod(0o600)
    run_laptop(home, start_tmux=True)
    run_laptop(home, undo=True)
    assert not bashrc.exists()


def test_a_block_copied_from_another_machine_is_not_the_users(home: Path) -> None:
    bashrc = home / ".bashrc"
    bashrc.write_text(f"mine\n{BEGIN}\nof an older gpuctl\n{END}\n")
    run_laptop(home)
    run_laptop(home, undo=True)
    assert bashrc.read_text() == "mine\n"


def test_a_damaged_marker_is_reported_and_the_file_left_alone(home: Path) -> None:
    bashrc = home / ".bashrc"
    bashrc.write_text(f"mine\n{BEGIN}\nmine, too\n")
    (row,) = run_laptop(home)["files"]
    assert not row["changed"]
    assert "line 2" in row["why"]
    assert bashrc.read_text() == f"mine\n{BEGIN}\nmine, too\n"


@pytest.mark.skipif(not shutil.which("zsh"), reason="the package zsh")
def test_the_zsh_block_is_written_to_zdotdir(home: Path) -> None:
    (home / ".zshenv").write_text("echo welcome\nZDOTDIR=$HOME/zsh\n")  # not exported: only zsh knows it
    (home / "zsh").mkdir()
    (home / "zsh/.zshrc").write_text("mine\n")
    run_laptop(home)
    assert BEGIN in (home / "zsh/.zshrc").read_text()
    assert not (home / ".zshrc").exists()
    run_laptop(home, undo=True)
    assert (home / "zsh/.zshrc").read_text() == "mine\n"


def test_zdotdir_of_the_environment_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "dots").mkdir()
    (home / "dots/.zshrc").write_text("mine\n")
    monkeypatch.setenv("ZDOTDIR", str(home / "dots"))
    run_laptop(home)
    assert BEGIN in (home / "dots/.zshrc").read_text()


def test_an_unreadable_record_is_named_and_nothing_is_changed(home: Path) -> None:
    record = home / ".local/state/workstation/record.json"
    record.parent.mkdir(parents=True)
    for text in ("{half", "[]", json.dumps({"form": 1})):
        record.write_text(text)
        with pytest.raises(WorkstationError, match=rf"{record} cannot be read"):
            run_laptop(home)
    assert not (home / ".bashrc").exists()


def test_an_unwritable_home_is_named(home: Path) -> None:
    (home / ".local").write_text("a file where a folder has to be")
    with pytest.raises(WorkstationError, match=rf"{home}/\.local"):
        run_laptop(home)


def test_an_unwritable_shell_file_is_reported_and_the_run_continues(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".bashrc").write_text("mine\n")
    (home / ".zshrc").write_text("mine\n")
    refuse(monkeypatch, ".bashrc")
    outcome = {Path(row["path"]).name: row for row in run_laptop(home)["files"]}
    assert (outcome[".bashrc"]["changed"], outcome[".zshrc"]["changed"]) == (False, True)
    assert "Operation not permitted" in outcome[".bashrc"]["why"]
    assert sorted(path.name for path in home.iterdir() if path.is_file()) == [".bashrc", ".zshrc"]


def test_a_file_that_cannot_be_restored_does_not_stop_undo(home: Path) -> None:
    for name in (".bashrc", ".zshrc"):
        (home / name).write_text("mine\n")
    run_laptop(home)
    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, ".bashrc")
        outcome = run_laptop(home, undo=True)
    assert outcome["conflicts"] == [str(home / ".bashrc")]
    assert "Operation not permitted" in outcome["undone"][0]["why"]
    assert (home / ".zshrc").read_text() == "mine\n"
    assert run_laptop(home, undo=True)["conflicts"] == []
    assert (home / ".bashrc").read_text() == "mine\n"


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Root may write anything: let the last step fail, as for a file that is immutable."""
    replace = os.replace

    def refusing(source: str, target: str) -> None:
        if target.endswith(name):
            raise PermissionError(1, "Operation not permitted", source, None, target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", refusing)


@pytest.mark.parametrize("force", [False, True])
def test_undo_removes_exactly_the_block_from_a_file_that_changed_around_it(home: Path, force: bool) -> None:
    bashrc = home / ".bashrc"
    bashrc.write_text("mine\n")
    run_laptop(home)
    bashrc.write_text("# by conda\n" + bashrc.read_text() + "# by nvm\n")
    bashrc.chmod(0o600)
    result = run_laptop(home, undo=True, force=force)
    assert result["conflicts"] == []
    assert bashrc.read_text() == "# by conda\nmine\n# by nvm\n"
    assert bashrc.stat().st_mode & 0o777 == 0o600
    assert not run_laptop(home, undo=True)["undone"]


def test_a_check_of_undo_gives_the_same_rows_and_changes_nothing(home: Path) -> None:
    bashrc = home / ".bashrc"
    run_laptop(home)
    bashrc.write_text(bashrc.read_text() + "# by nvm\n")
    before = bashrc.read_text()
    promised = run_laptop(home, undo=True, check=True)["undone"]
    assert bashrc.read_text() == before
    assert run_laptop(home, undo=True)["undone"] == promised
    assert bashrc.read_text() == "# by nvm\n"


def test_a_block_that_the_user_removed_is_no_conflict(home: Path) -> None:
    bashrc = home / ".bashrc"
    bashrc.write_text("mine\n")
    run_laptop(home)
    bashrc.write_text("mine, too\n")
    result = run_laptop(home, undo=True, force=True)
    assert [(row["state"], row["changed"]) for row in result["undone"]] == [("RESTORED", False)]
    assert bashrc.read_text() == "mine, too\n"


def test_a_shell_file_moved_into_a_dotfiles_repository_loses_the_block_there(home: Path) -> None:
    bashrc, moved = home / ".bashrc", home / "dots"
    bashrc.write_text("mine\n")
    run_laptop(home)
    bashrc.rename(moved)
    moved.write_text(moved.read_text() + "mine, too\n")
    bashrc.symlink_to(moved)
    assert run_laptop(home, undo=True)["conflicts"] == []
    assert bashrc.readlink() == moved
    assert moved.read_text() == "mine\nmine, too\n"


def test_the_users_lines_inside_the_block_are_a_conflict_and_survive_force(home: Path) -> None:
    bashrc = home / ".bashrc"
    run_laptop(home)
    users = 'if [ -n "$EDITOR" ]; then\n  export VISUAL=$EDITOR\nfi\n'
    bashrc.write_text(bashrc.read_text().replace(END, users + END) + "# by nvm\n")
    result = run_laptop(home, undo=True)
    assert result["conflicts"] == [str(bashrc)]
    assert "3 lines between our markers" in result["undone"][0]["why"]
    (row,) = run_laptop(home, undo=True, force=True)["undone"]
    assert bashrc.read_text() == users + "# by nvm\n"
    assert "a copy of the file is in" in row["why"]


def test_the_users_lines_inside_the_block_move_below_it_on_the_next_run(home: Path) -> None:
    bashrc = home / ".bashrc"
    run_laptop(home)
    bashrc.write_text(bashrc.read_text().replace(END, f"alias k=kubectl\n{END}"))
    run_laptop(home, start_tmux=True)
    assert bashrc.read_text().endswith(f"{END}\nalias k=kubectl\n")
    run_laptop(home, undo=True)
    assert bashrc.read_text() == "alias k=kubectl\n"


@pytest.mark.parametrize("force", [False, True])
def test_a_marker_damaged_since_leaves_the_file_alone_even_with_force(home: Path, force: bool) -> None:
    bashrc = home / ".bashrc"
    run_laptop(home)
    bashrc.write_text(damaged := bashrc.read_text().replace(END, "mine"))
    result = run_laptop(home, undo=True, force=force)
    assert result["conflicts"] == [str(bashrc)]
    assert "line 1 " in result["undone"][0]["why"]
    assert bashrc.read_text() == damaged
