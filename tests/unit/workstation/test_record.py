"""What was there before is put back in content, mode and links; what the user edited since stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.record import Record
from ansible_collections.gpuctl.fleet.plugins.module_utils.workstation.undo import remove, undo


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def a_record(home: Path) -> Record:
    return Record(str(home.parent / "state"))


def states(rows: list[dict[str, str]], home: Path) -> dict[str, str]:
    return {os.path.relpath(row["path"], home): row["state"] for row in rows}


def test_undo_restores_a_file_with_content_and_mode(home: Path) -> None:
    file = home / ".bashrc"
    file.write_bytes(b"mine, \xff and no newline")
    file.chmod(0o640)
    a_record(home).write(str(file), b"ours", 0o640)
    assert file.read_bytes() == b"ours"
    undo(a_record(home), check=False, force=False)
    assert file.read_bytes() == b"mine, \xff and no newline"
    assert file.stat().st_mode & 0o777 == 0o640


def test_undo_restores_a_link_as_a_link(home: Path) -> None:
    link = home / "k9s"
    link.symlink_to("/opt/own/k9s")
    a_record(home).link(str(link), "/somewhere/k9s")
    undo(a_record(home), check=False, force=False)
    assert link.readlink() == Path("/opt/own/k9s")


def test_created_folders_are_removed_if_empty(home: Path) -> None:
    record = a_record(home)
    record.make_folders(str(home / ".local/bin"))
    record.make_folders(str(home / ".local/share"))
    (home / ".local/share/theirs").write_text("")
    undo(a_record(home), check=False, force=False)
    assert not (home / ".local/bin").exists()
    assert (home / ".local/share/theirs").exists()


def test_an_edited_file_is_a_conflict_and_stays(home: Path) -> None:
    file = home / ".bashrc"
    file.write_text("before")
    a_record(home).write(str(file), b"ours", 0o644)
    file.write_text("edited")
    assert states(undo(a_record(home), check=False, force=False), home) == {".bashrc": "CONFLICT"}
    assert file.read_text() == "edited"


def test_force_restores_an_edited_file_and_keeps_a_copy(home: Path) -> None:
    file = home / ".bashrc"
    file.write_text("before")
    a_record(home).write(str(file), b"ours", 0o644)
    file.write_text("edited")
    (row,) = undo(a_record(home), check=False, force=True)
    assert file.read_text() == "before"
    (copy,) = (home.parent / "state").glob("edited-*.json")
    assert row["why"] == f"a file; your version is kept in {copy}"


def test_a_check_of_undo_reports_the_same_and_changes_nothing(home: Path) -> None:
    file = home / ".bashrc"
    a_record(home).write(str(file), b"ours", 0o644)
    promised = undo(a_record(home), check=True, force=False)
    assert file.read_text() == "ours"
    assert undo(a_record(home), check=False, force=False) == promised
    assert not file.exists()


def test_undo_restores_the_file_that_the_user_wrote_between_two_runs(home: Path) -> None:
    file = home / ".bashrc"
    file.write_text("first")
    a_record(home).write(str(file), b"ours", 0o644)
    file.write_text("the user's own again")
    a_record(home).write(str(file), b"ours, too", 0o644)
    undo(a_record(home), check=False, force=False)
    assert file.read_text() == "the user's own again"


def test_undo_of_a_change_that_was_never_made_changes_nothing(home: Path) -> None:
    file = home / "tool"
    record = a_record(home)
    record.link(str(file), "/ours")
    file.unlink()
    (row,) = undo(a_record(home), check=False, force=False)
    assert (row["state"], row["changed"]) == ("RESTORED", False)


def a_tool(home: Path, name: str) -> Path:
    """One that we installed: a version, and a link to it."""
    version = home / "tools" / name / "1.0"
    version.mkdir(parents=True)
    (version / name).write_text("ours")
    record = a_record(home)
    record.add_tool(str(version.parent))
    record.link(str(home / name), str(version / name))
    return home / name


def test_removing_a_tool_restores_its_earlier_link(home: Path) -> None:
    (home / "k9s").write_text("my own")
    mine, other = a_tool(home, "k9s"), a_tool(home, "helm")
    remove(a_record(home), {"k9s": "k9s"}, check=False, force=False)
    assert mine.read_text() == "my own"
    assert not (home / "tools/k9s").exists()
    assert other.read_text() == "ours"
    undo(a_record(home), check=False, force=False)
    assert mine.read_text() == "my own"
    assert not other.is_symlink()


def test_a_tool_that_we_did_not_install_is_left_alone(home: Path) -> None:
    (home / "jq").write_text("theirs")
    (row,) = remove(a_record(home), {"jq": "jq"}, check=False, force=False)
    assert (row["path"], row["state"], row["changed"]) == ("jq", "NOT OURS", False)
    assert (home / "jq").read_text() == "theirs"


def test_a_check_of_a_removal_reports_the_same_and_removes_nothing(home: Path) -> None:
    mine = a_tool(home, "k9s")
    promised = remove(a_record(home), {"k9s": "k9s"}, check=True, force=False)
    assert mine.read_text() == "ours"
    assert remove(a_record(home), {"k9s": "k9s"}, check=False, force=False) == promised


def test_a_removed_tool_keeps_the_version_of_a_changed_link(home: Path) -> None:
    mine = a_tool(home, "k9s")
    other = home / "tools/k9s/1.0/k9s-too"
    other.write_text("ours, too")
    mine.unlink()
    mine.symlink_to(other)
    removed = remove(a_record(home), {"k9s": "k9s"}, check=False, force=False)
    assert [row["state"] for row in removed] == ["CONFLICT"]
    assert mine.read_text() == "ours, too"
