"""gpuctl profile, where one of the user's own profiles is broken or a name is misspelt."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.hosts.profile import group
from gpuctl.core.errors import InvalidInput


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path))
    (tmp_path / "profiles").mkdir()
    path = tmp_path / "profiles/site.yml"
    path.write_text("about: x\nknobs: {sysctl.vm.swapiness: {value: 1, why: a, source: b}}\nknbs: {}\n")
    return path


def test_a_broken_profile_keeps_no_other_from_being_listed(broken: Path) -> None:
    said = CliRunner().invoke(group, ["list"])
    assert "training" in said.output
    assert isinstance(said.exception, InvalidInput)
    assert f"{broken}:3" in said.exception.wrong


def test_a_broken_profile_is_the_users_to_mend_when_a_knob_is_explained(broken: Path) -> None:
    said = CliRunner().invoke(group, ["explain", "sysctl.vm.swappiness"])
    assert isinstance(said.exception, InvalidInput)
    assert str(broken) in said.exception.wrong


def test_a_misspelt_knob_gets_the_right_one_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_CONFIG_DIR", str(tmp_path))
    said = CliRunner().invoke(group, ["explain", "sysctl.vm.swapiness"])
    assert isinstance(said.exception, InvalidInput)
    assert "sysctl.vm.swappiness" in said.exception.hint
