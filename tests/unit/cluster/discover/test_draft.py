"""Drafting a cluster file: where it is written, and what is told before any cluster is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.cluster.discover import discover
from gpuctl.cluster.discover import flow
from gpuctl.core.errors import InvalidInput


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("mine\n")
    with pytest.raises(InvalidInput, match="it exists already and was left alone"):
        flow.check_free(path, force=False)
    with pytest.raises(InvalidInput, match="it was created meanwhile and was left alone"):
        flow.write(path, "new\n", force=False)
    assert (path.read_text(), list(tmp_path.iterdir())) == ("mine\n", [path])
    flow.check_free(path, force=True)
    flow.write(path, "new\n", force=True)
    assert (path.read_text(), list(tmp_path.iterdir())) == ("new\n", [path])


def test_a_link_that_leads_nowhere_counts_as_there(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="left alone"):
        flow.check_free(path, force=False)


def test_a_new_file_is_written_whole(tmp_path: Path) -> None:
    flow.write(tmp_path / "lab.yaml", "text\n", force=False)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("lab.yaml", "text\n")]


def test_missing_folders_of_a_new_file_are_made(tmp_path: Path) -> None:
    path = tmp_path / "site/clusters/lab.yaml"
    flow.check_free(path, force=False)
    assert not path.parent.exists()
    flow.write(path, "text\n", force=False)
    assert path.read_text() == "text\n"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("there.yaml/lab.yaml", "is not a folder"), (".", "it is a folder"), ("there.yaml", "it exists already")],
)
def test_a_place_that_cannot_be_written_is_reported_before_any_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    (tmp_path / "there.yaml").touch()
    done = CliRunner().invoke(discover, ["--output-file", name])
    assert isinstance(done.exception, InvalidInput)
    assert wrong in str(done.exception)


@pytest.mark.parametrize(("option", "value"), [("--namespace", "Team"), ("--image", "Quay.io/x y")])
def test_what_is_given_and_cannot_be_used_is_reported_before_any_cluster_is_asked(option: str, value: str) -> None:
    done = CliRunner().invoke(discover, [option, value])
    assert isinstance(done.exception, InvalidInput)
    assert f"cannot use {option}: '{value}' is not" in str(done.exception)
