"""What is built, and what is refused, before any cluster is asked."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuctl.cli.cluster import build
from gpuctl.cli.cluster.group import group
from gpuctl.cluster.environment import Environment, environment
from gpuctl.cluster.image_build import flow
from gpuctl.core.errors import InvalidInput
from tests.rig.cluster.files import BUILT, ON_OPENSHIFT, cluster, write

FOLDER: dict[str, Any] = {"image": {"name": None, "build": {}}}
INLINE: dict[str, Any] = {"image": {"name": None, "build": {"dockerfile": "FROM a\n"}}}


def env_of(folder: Path, *changes: dict[str, Any]) -> Environment:
    return environment(cluster(folder, *changes))


@pytest.mark.parametrize(
    ("changes", "wrong", "hint"),
    [
        ((), "lab is not OpenShift: it builds no images", "`podman build -t quay.io/team/ml:1 . && podman push"),
        ((ON_OPENSHIFT,), "names an existing image: quay.io/team/ml:1", "`image: {build: {}}`"),
    ],
    ids=["not OpenShift", "an existing image"],
)
def test_where_nothing_is_built_it_says_what_to_do_instead(
    tmp_path: Path, changes: tuple[dict[str, Any], ...], wrong: str, hint: str
) -> None:
    done = CliRunner().invoke(group, ["build", str(write(tmp_path, *changes))])
    assert isinstance(done.exception, InvalidInput)
    assert wrong in str(done.exception)
    assert hint in done.exception.hint
    assert done.exception.exit_code == 2


def test_a_folder_without_dockerfile_is_reported_before_any_cluster_is_asked(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = CliRunner().invoke(group, ["build", str(write(tmp_path, ON_OPENSHIFT, FOLDER)), "--folder", str(empty)])
    assert isinstance(done.exception, InvalidInput)
    assert "neither a Dockerfile nor a Containerfile" in str(done.exception)


def test_a_folder_is_sent_where_it_is_asked_for_or_nothing_else_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    (source / "image").mkdir(parents=True)
    (source / "Dockerfile").write_text("FROM a\n")
    monkeypatch.chdir(source)
    assert flow.read(env_of(tmp_path, ON_OPENSHIFT, BUILT), None) is None
    assert flow.read(env_of(tmp_path, ON_OPENSHIFT, INLINE), None) is None
    sent = flow.read(env_of(tmp_path, ON_OPENSHIFT, FOLDER), None)
    assert sent is not None
    assert [each.path for each in sent.members] == ["Dockerfile", "image"]
    # With its own Dockerfile in the cluster file, the folder needs none; of a repository its folder is built.
    inline = flow.read(env_of(tmp_path, ON_OPENSHIFT, INLINE), source / "image")
    assert inline is not None
    assert inline.members == ()
    with pytest.raises(InvalidInput, match="its folder image has neither"):
        flow.read(env_of(tmp_path, ON_OPENSHIFT, BUILT), source)


def test_that_nobody_reads_what_is_reported_does_not_end_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    unread = io.TextIOWrapper(io.FileIO(writing, "w"), write_through=True)
    monkeypatch.setattr(sys, "stderr", unread)
    with pytest.raises(BrokenPipeError):
        unread.write("x")
    build._tell("Build lab-1", "is running")
    with contextlib.suppress(BrokenPipeError):
        unread.close()
