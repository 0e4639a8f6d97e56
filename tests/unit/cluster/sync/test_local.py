"""The folder here: what is left out, what is found, what is told apart."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.sync import excludes
from gpuctl.cluster.sync.excludes import Excludes
from gpuctl.cluster.sync.local import KeepsChanging, Local
from gpuctl.cluster.sync.model import Item
from gpuctl.cluster.sync.scan import rescan, scan
from gpuctl.core.errors import InvalidInput
from tests.rig.cluster.receiver import fill

USUAL = Excludes([])


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        (".git", True),
        ("deep/.git", True),
        (".git", False),
        ("pkg/__pycache__", True),
        ("pkg/a.pyc", False),
        (".venv", True),
        ("checkpoints", True),
        ("runs/checkpoint-500", True),
        ("hostfile", False),
        ("a.py.swp", False),
        ("a.py~", False),
        (".gpuctl-sync", True),
    ],
)
def test_what_is_usually_left_out(path: str, folder: bool) -> None:
    assert USUAL.excludes(path, folder=folder) is (path != ".git" or folder)


@pytest.mark.parametrize("path", ["pkg/checkpoints", "venv.py", "git", "data/hostfile"])
def test_what_only_looks_like_it_is_not_left_out(path: str) -> None:
    assert not USUAL.excludes(path, folder="." not in path)


def test_the_last_pattern_that_fits_decides_but_our_record_is_always_left_out() -> None:
    found = Excludes(["*.log", "!keep.log", "!.venv/", "!.gpuctl-sync"])
    assert found.excludes("a.log", folder=False)
    assert not found.excludes("keep.log", folder=False)
    assert not found.excludes(".venv", folder=True)
    assert found.excludes(".gpuctl-sync", folder=True)


def test_patterns_come_from_the_folder_and_the_command(tmp_path: Path) -> None:
    fill(tmp_path, {".gpuctlignore": "*.bin\n# a comment\n", "a.bin": "", "b.txt": "", "c.py": ""})
    found = scan(tmp_path, excludes.read_patterns(tmp_path, ["*.txt"]))
    assert (set(found.items), set(found.left_out)) == ({".gpuctlignore", "c.py"}, {"a.bin", "b.txt"})


def test_a_file_of_patterns_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".gpuctlignore").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"cannot read .*\.gpuctlignore"):
        excludes.read_patterns(tmp_path, [])


def test_sockets_and_pipes_are_reported_and_not_taken(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        found = scan(tmp_path, USUAL)
    assert (list(found.items), set(found.special)) == ([], {"pipe", "socket"})


def test_looking_again_at_what_changed_finds_the_same_as_looking_at_all(tmp_path: Path) -> None:
    fill(tmp_path, {"a.py": "a", "pkg/b.py": "b", "pkg/deep/c.py": "c", "old/d.py": "d"})
    before = scan(tmp_path, USUAL)
    (tmp_path / "a.py").write_text("changed")
    (tmp_path / "old").rename(tmp_path / "new")
    fill(tmp_path, {"pkg/deep/more/e.py": "e", ".venv/lib/f.py": "f"})
    changed = ["a.py", "old", "new", "pkg/deep/more/e.py", "pkg/deep/more", ".venv/lib/f.py", ".venv"]
    found = rescan(tmp_path, USUAL, before, changed)
    assert found == scan(tmp_path, USUAL)
    assert found.left_out == {".venv"}


def test_of_a_folder_that_is_gone_nothing_is_known_and_its_files_are_not_gone(tmp_path: Path) -> None:
    fill(tmp_path / "here", {"a.py": "a", "pkg/b.py": "b"})
    before = scan(tmp_path / "here", USUAL)
    (tmp_path / "here").rename(tmp_path / "away")
    for found in (scan(tmp_path / "here", USUAL), rescan(tmp_path / "here", USUAL, before, ["pkg/b.py", "pkg"])):
        assert found.unread == {"": "the folder does not exist"}
        assert all(found.is_unknown(path) for path in before.items)
    fill(tmp_path / "here", {"a.py": "a"})
    assert scan(tmp_path / "here", USUAL).unread == {}


def test_a_folder_that_becomes_another_while_it_is_read_was_not_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, away = tmp_path / "here", tmp_path / "away"
    fill(here, {"a.py": "a"})
    read = os.scandir

    def replaced(path: Path) -> Any:
        here.rename(away)
        here.mkdir()
        return read(path)

    monkeypatch.setattr(os, "scandir", replaced)
    assert scan(here, USUAL).unread == {"": "it was replaced while it was read"}


@pytest.mark.parametrize(("becomes", "unread"), [("nothing", {}), ("a file", {"to": "Invalid argument"})])
def test_a_link_that_is_gone_before_it_is_read_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, becomes: str, unread: dict[str, str]
) -> None:
    (tmp_path / "to").symlink_to("a.py")
    read = Path.readlink

    def late(path: Path) -> Path:
        path.unlink()
        if becomes == "a file":
            path.write_text("a file")
        return read(path)

    monkeypatch.setattr(Path, "readlink", late)
    found = scan(tmp_path, USUAL)
    assert (found.items, found.unread) == ({}, unread)


def test_another_look_tells_where_something_changed_and_not_what_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, {"a.py": "a", "b.py": "b", "pkg/c.py": "c"})
    local = Local(tmp_path, USUAL)
    (tmp_path / "a.py").write_text("changed")
    (tmp_path / "b.py").unlink()
    fill(tmp_path, {"pkg/d.py": "d", "__pycache__/a.pyc": ""})
    assert local.rescan() == ["a.py", "b.py", "pkg/d.py"]
    fill(tmp_path, {"pkg/__pycache__/c.pyc": ""})
    assert (local.rescan(), local.version) == ([], 2)
    assert "pkg/__pycache__" in local.scanned.left_out
    local.source = tmp_path / "nowhere"
    assert local.rescan() == ["."]


def test_a_link_to_a_folder_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/loop").symlink_to("..")
    found = scan(tmp_path / "here", USUAL)
    assert {path: item.to for path, item in found.items.items()} == {"loop": ".."}


def test_files_are_read_and_packed_once_for_all_pods(tmp_path: Path) -> None:
    fill(tmp_path, {"a.py": "a", "b.py": "b"})
    local = Local(tmp_path, USUAL)
    files = tuple(local.scanned.items.items())
    first = local.batch(files)
    (tmp_path / "a.py").unlink()
    assert local.batch(files) is first
    assert set(first.sent) == {"a.py", "b.py"}
    local.rescan()
    assert set(local.batch(files).sent) == {"b.py"}


def test_a_file_that_never_stays_the_same_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "grows.bin"
    path.write_bytes(b"x" * (2 << 20))
    sent: dict[str, tuple[str, Item]] = {}

    def take() -> None:
        for _ in Local(tmp_path, USUAL).large("grows.bin", sent):
            with path.open("ab") as stream:
                stream.write(b"y")

    with pytest.raises(KeepsChanging):
        take()
    assert sent == {}


def test_a_file_that_has_just_been_written_proves_nothing_by_its_time(tmp_path: Path) -> None:
    fill(tmp_path, {"new.py": "a"})
    local = Local(tmp_path, USUAL)
    assert local.batch(tuple(local.scanned.items.items())).sent["new.py"][1].source[2] == 0
