"""A profile is found by its path, or by its name in the user's folder or among the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

from tests.rig.profile_files import mistakes, row, write

TEXT = f"knobs:\n  thp.enabled: {row('never')}\n"


def test_a_user_profile_is_found_by_name_in_the_config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profiles").mkdir()
    path = write(tmp_path / "profiles", "mine", TEXT)
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path))
    assert profiles.load("mine").name == "mine"
    assert profiles.ProfileFile("mine", path, shipped=False) in profiles.names()


def test_the_config_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUCTL_CONFIG_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gpuctl/profiles").mkdir(parents=True)
    write(tmp_path / "gpuctl/profiles", "mine", TEXT)
    assert profiles.load("mine").name == "mine"


def test_a_profile_by_path_is_called_after_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "mine", TEXT)
    monkeypatch.chdir(tmp_path)
    assert [profiles.load(path).name for path in ("mine.yml", "./mine.yml", tmp_path / "mine.yml")] == ["mine"] * 3


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert mistakes(tmp_path / "mine.yml") == [f"profile {tmp_path}/mine.yml: there is no file {tmp_path}/mine.yml"]


def test_an_unknown_name_gets_the_closest_or_all_names(tmp_path: Path) -> None:
    assert mistakes("trainig") == ["profile trainig: no profile is called 'trainig'; did you mean training?"]
    known = "inference, isolated, latency, minimal, training"
    assert mistakes("x") == [f"profile x: no profile is called 'x'; it can be {known}"]
    assert mistakes("") == ["profile: none is named"]


def test_a_name_in_two_folders_is_refused_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = write(tmp_path / "a", "mine", TEXT), write(tmp_path / "b", "mine", TEXT)
    messages = mistakes("mine", [tmp_path / "a", tmp_path / "b"])
    assert messages == [f"profile mine: mine is in two places: {one} and {two}; rename one, or give its path"]


def test_a_user_profile_with_a_shipped_name_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "training", TEXT)
    [messages] = mistakes("training", [tmp_path])
    assert messages.endswith("give yours another name and `extends: training`")


def test_a_name_inside_a_file_must_be_the_files(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", f"name: yours\n{TEXT}")
    assert mistakes(path) == ["1: name is 'yours', but the file's name is mine; leave it out"]


def test_names_lists_shipped_and_own_profiles_but_no_hidden_files(tmp_path: Path) -> None:
    write(tmp_path, "mine", TEXT)
    write(tmp_path, ".#mine", TEXT)
    (tmp_path / "notes.txt").write_text("not a profile\n")
    listed = [(file.name, file.shipped) for file in profiles.names([tmp_path, tmp_path / "missing"])]
    assert listed == [
        ("inference", True),
        ("isolated", True),
        ("latency", True),
        ("minimal", True),
        ("training", True),
        ("mine", False),
    ]
