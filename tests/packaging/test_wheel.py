"""What `pip install gpuctl` promises: the command, the playbooks and the modules work from any folder."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import Installed, build

GPUHOST = "ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost"


@pytest.mark.parametrize("carrier", ["ssh", "ansible"])
def test_the_command_tunes(installed: Installed, carrier: str) -> None:
    done = installed.run("gpuctl", "tune-nodes", "--inventory", "localhost", "--check", "--via", carrier)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "localhost" in done.stdout


def test_plain_ansible_finds_the_playbook(installed: Installed) -> None:
    here = ("-i", "localhost,", "-c", "local")
    done = installed.run("ansible-playbook", "gpuctl.fleet.tune_nodes", *here, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout


def test_ansible_doc_prints_the_documentation(installed: Installed) -> None:
    done = installed.run("ansible-doc", "gpuctl.fleet.host_profile")
    assert done.returncode == 0, done.stderr
    assert "gpuctl.fleet.host_profile:" in done.stdout  # from the examples


def test_package_and_collection_come_from_one_place(installed: Installed, tree: Path) -> None:
    """From the environment or from the sources it was installed from: never from the checkout of the tests."""
    done = installed.run("python", "-c", f"import gpuctl, {GPUHOST} as g; print(gpuctl.__file__, g.__file__)")
    assert done.returncode == 0, done.stderr
    homes = (installed.environment, tree)
    (package,), (collection,) = ([h for h in homes if Path(f).is_relative_to(h)] for f in done.stdout.split())
    assert package == collection


def test_edits_of_an_editable_install_are_live(installed: Installed, tree: Path) -> None:
    module = tree / "plugins/module_utils/gpuhost/just_written.py"
    module.write_text("")
    try:
        done = installed.run("python", "-c", f"import {GPUHOST}.just_written")
    finally:
        module.unlink()
    linked = not list(installed.environment.glob("lib/*/site-packages/ansible_collections"))
    assert (done.returncode == 0) is linked, done.stderr


def test_the_wheel_carries_the_examples_and_neither_tests_nor_anything_built(wheel: Path, tree: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "ansible_collections/gpuctl/fleet/playbooks/tune_nodes.yml" in names
    # The documentation tells users to copy these.
    files = [
        path.relative_to(tree) for path in (tree / "examples").rglob("*") if path.suffix != ".pyc" and path.is_file()
    ]
    assert {"clusters", "training"} <= {path.parts[1] for path in files}
    assert {f"ansible_collections/gpuctl/fleet/{path}" for path in files} <= set(names)
    assert [name for name in names if {"molecule", "tests"} & set(name.split("/")) or name.endswith(".pyc")] == []
    assert [name for name in names if Path(name).name.startswith(("test_", "conftest"))] == []


def test_the_source_archive_makes_the_same_wheel(tree: Path, wheel: Path, tmp_path: Path) -> None:
    for folder in ("sdist", "wheel"):
        (tmp_path / folder).mkdir()
    with tarfile.open(build("sdist", tree, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("gpuctl-*")
    again = build("wheel", unpacked, tmp_path / "wheel")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_carries_the_changelog_that_self_update_shows(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        assert content.read("gpuctl/CHANGELOG.md").decode().startswith("# Changelog\n")
