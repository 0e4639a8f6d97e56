"""What ansible.cfg says of how hosts are reached counts where a host's own variables say nothing."""

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


def test_configuration_fills_in_what_a_host_leaves_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ansible.cfg").write_text(CONFIG)
    Path("hosts").write_text("plain\nown ansible_ssh_user=admin ansible_become=false\n")
    found = inventory.read(tmp_path / "hosts", "")
    configured = {
        "ansible_private_key_file": str(tmp_path / "keys/fleet"),
        "ansible_ssh_common_args": "-o ProxyJump=bastion",
    }
    assert found["plain"] == {"ansible_user": "ubuntu", "ansible_become": True, **configured}
    assert found["own"] == {"ansible_ssh_user": "admin", "ansible_become": "false", **configured}


def test_without_configuration_nothing_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("hosts").write_text("plain\n")
    assert inventory.read(tmp_path / "hosts", "") == {"plain": {}}
