"""Connection settings of ansible.cfg apply unless a host's own variables override them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.edges import inventory

CONFIG = """[defaults]
remote_user = ubuntu
private_key_file = keys/fleet
[privilege_escalation]
become = true
[ssh_connection]
ssh_common_args = -o ProxyJump=bastion
"""


def test_configuration_applies_to_variables_that_a_host_does_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ansible.cfg").write_text(CONFIG)
    Path("hosts").write_text("plain\nown ansible_ssh_user=admin ansible_become=false\n")
    found = inventory.read(tmp_path / "hosts", "")
    configured = {
        "ansible_private_key_file": str(tmp_path / "keys/fleet"),
        "ansible_ssh_common_args": "-o ProxyJump=bastion",
    }
    rest = {**configured, "group_names": ["ungrouped"]}
    assert found["plain"] == {"ansible_user": "ubuntu", "ansible_become": True, **rest}
    assert found["own"] == {"ansible_ssh_user": "admin", "ansible_become": "false", **rest}


def test_without_configuration_nothing_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("hosts").write_text("plain\n")
    assert inventory.read(tmp_path / "hosts", "") == {"plain": {"group_names": ["ungrouped"]}}


def test_a_host_is_in_its_groups_and_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("[training]\na\nb\n[host_profile:children]\ntraining\n[login]\nc\n")
    found = {host: set(variables["group_names"]) for host, variables in inventory.read(tmp_path / "hosts", "").items()}
    assert found == {"a": {"training", "host_profile"}, "b": {"training", "host_profile"}, "c": {"login"}}
