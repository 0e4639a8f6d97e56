"""The cache of inventories is never older than their files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import inventory_cache


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod/hosts").write_text("gpu-1\ngpu-2\n")
    return tmp_path


def users(here: Path, limit: str = "") -> dict[str, object]:
    found = inventory_cache.read(here / "prod", limit)
    return {host: variables.get("ansible_user") for host, variables in found.items()}


def test_a_second_read_comes_from_the_cache(here: Path) -> None:
    assert users(here) == {"gpu-1": None, "gpu-2": None}
    (kept,) = (here / "cache/inventories").iterdir()
    kept.write_text('{"remembered": {}}')
    assert users(here) == {"remembered": None}


def test_a_damaged_file_of_the_cache_is_read_again(here: Path) -> None:
    users(here)
    (kept,) = (here / "cache/inventories").iterdir()
    kept.write_text('{"gpu-')
    assert users(here) == {"gpu-1": None, "gpu-2": None}
    assert "gpu-2" in kept.read_text()


def test_variables_in_linked_files_apply(here: Path) -> None:
    (here / "shared").mkdir()
    (here / "shared/all.yml").write_text("ansible_user: one\n")
    (here / "prod/group_vars").symlink_to(here / "shared")
    assert users(here)["gpu-1"] == "one"
    (here / "shared/all.yml").write_text("ansible_user: another\n")
    assert users(here)["gpu-1"] == "another"


def test_a_limit_file_is_read_every_time(here: Path) -> None:
    names = here / "failed"
    names.write_text("gpu-1\n")
    assert list(users(here, f"@{names}")) == ["gpu-1"]
    names.write_text("gpu-2\n")
    assert list(users(here, f"@{names}")) == ["gpu-2"]


@pytest.mark.parametrize("named", ["", "/ansible.cfg"])
def test_a_configuration_named_by_file_or_folder_applies(
    here: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (here / "conf").mkdir()
    config = here / "conf/ansible.cfg"
    config.write_text("[defaults]\nremote_user = one\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", f"{here}/conf{named}")
    assert users(here)["gpu-1"] == "one"
    config.write_text("[defaults]\nremote_user = another\n")
    assert users(here)["gpu-1"] == "another"


def test_a_cache_that_is_not_writable_does_no_harm(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_CACHE_DIR", "/proc/nope")
    assert list(users(here)) == ["gpu-1", "gpu-2"]


def test_an_editors_lock_does_not_matter(here: Path) -> None:
    """Emacs makes a link to nowhere while a file is edited."""
    (here / "prod/.#hosts").symlink_to("me@workstation.4711:1")
    test_a_second_read_comes_from_the_cache(here)


@pytest.mark.parametrize("name", ["circle", "nowhere"])
def test_a_file_that_cannot_be_read_is_refused_by_name(here: Path, name: str) -> None:
    (here / "prod/more.yml").symlink_to({"circle": "more.yml"}.get(name, name))
    with pytest.raises(InvalidInput, match=r"prod/more\.yml"):
        users(here)


def test_an_inventory_with_a_pipe_is_not_read_for_the_cache(here: Path) -> None:
    """Reading a pipe that nobody writes to would take forever; Ansible ignores files that end in .swp."""
    os.mkfifo(here / "prod/hosts.swp")
    assert users(here) == {"gpu-1": None, "gpu-2": None}
    assert not (here / "cache").exists()
