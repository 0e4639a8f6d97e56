"""Straight over ssh and through Ansible: the same answers, by the same ways in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl, reach
from tests.rig.ground import sh
from tests.rig.reports import valid_junit

FEW = {
    "sysctl.vm.swappiness": 1,
    "sysctl.vm.dirty_bytes": "8GiB",
    "sysctl.net.core.busy_poll": 50,
    "thp.enabled": "never",
    "cpu.idle_latency_us": 99,
    "irq.balance": "off",
    "irq.affinity": "node",
    "program.gpuctl-exec": "installed",
}
WAYS = ("ssh", "ansible")


def answer(host: dict[str, Any]) -> dict[str, Any]:
    """What was said of a host and each of its knobs, without the time it took and its name."""
    knobs = {knob["knob"]: knob for knob in host["knobs"]}
    return {**host, **knobs, "knobs": list(knobs), "seconds": None, "host": None}


def test_both_carriers_give_the_same_answer(gpuctl: Gpuctl, rig: Rig, hosts: Hosts) -> None:
    for host in hosts(2, machine="generic"):
        host.standin("nvidia-smi")
    words = ("--inventory", rig.inventory(), "--output", "json")
    tune = ("tune-nodes", *words, "--profile", gpuctl.profile(FEW))
    runs = {
        "check": (*tune, "--check"),
        "apply": tune,
        "the way back": ("rollback", *words),
    }
    for name, run in runs.items():
        over_ssh = gpuctl(*run, "--via", "ssh", "--limit", "h1")
        through_ansible = gpuctl(*run, "--via", "ansible", "--limit", "h2")
        assert answer(over_ssh.hosts["h1"]) == answer(through_ansible.hosts["h2"]), name
        assert over_ssh.code == through_ansible.code == 0, name


@pytest.mark.parametrize("way", WAYS)
def test_port_user_key_and_arguments_of_the_inventory_count(gpuctl: Gpuctl, host: TestHost, way: str) -> None:
    host.write("/etc/ssh/sshd_config.d/20-port.conf", "Port 2222\nAllowUsers admin\n")
    host.run("systemctl", "restart", "ssh")
    admin = reach(host, ansible_port=2222, ansible_user="admin", ansible_become=True)
    # Known by another name than its address, which only the inventory's arguments tell.
    admin["ansible_ssh_common_args"] = f"{admin['ansible_ssh_common_args']} -o HostKeyAlias={host.name}"
    key = admin.pop("ansible_private_key_file")
    inventory = gpuctl.inventory({"box": {**admin, "ansible_ssh_private_key_file": key}})
    said = gpuctl("tune-nodes", "-i", inventory, "-p", gpuctl.profile({"sysctl.vm.swappiness": 1}), "--via", way)
    assert said.code == 0
    assert host.read("/proc/sys/vm/swappiness") == "1\n"
    assert "Accepted publickey for admin" in host.run("journalctl", "--unit", "ssh").stdout


def test_the_users_own_ssh_configuration_counts(gpuctl: Gpuctl, rig: Rig, hosts: Hosts) -> None:
    jump, far = hosts(2, machine="generic")
    far.write("/etc/ssh/sshd_config.d/20-near.conf", f"Match Address *,!{jump.ip}\nDenyUsers root\n")
    far.run("systemctl", "restart", "ssh")
    common = f"User root\nIdentityFile {rig.state}/id_ed25519\nUserKnownHostsFile {rig.state}/known_hosts\n"
    text = f"Host jump\nHostName {jump.ip}\nHost gpu-box\nHostName {far.ip}\nProxyJump jump\nHost *\n{common}"
    (gpuctl.home / ".ssh").mkdir(mode=0o700)
    (gpuctl.home / ".ssh/config").write_text(text)
    inventory = gpuctl.inventory({"gpu-box": {}})
    profile = gpuctl.profile({"sysctl.vm.swappiness": 1})
    said = gpuctl("tune-nodes", "--inventory", inventory, "--profile", profile, "-o", "junit")
    assert (said.code, "gpu-box: changed" in said.err) == (0, True)
    assert set(valid_junit(said.out).values()) == {"passed"}
    assert far.read("/proc/sys/vm/swappiness") == "1\n"


def test_a_shared_connection_that_stays_behind_keeps_nobody_waiting(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    inventory = gpuctl.inventory({host.name: reach(host)})
    (gpuctl.home / "ansible.cfg").write_text(
        f"[ssh_connection]\nssh_args = -oControlMaster=auto -oControlPersist=20 -oControlPath={gpuctl.home}/%C\n"
    )
    said = gpuctl("drift", "--inventory", inventory, "--profile", gpuctl.profile(FEW), "--output", "json")
    assert said.code == 1
    assert said.hosts[host.name]["seconds"] < 15
    sh(
        "ssh",
        "-O",
        "exit",
        "-oControlPath=" + next(str(p) for p in gpuctl.home.glob("????????????*") if p.is_socket()),
        "x",
    )


def test_ansible_cfg_says_what_the_inventory_does_not(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    known = {"ansible_host": host.ip, "ansible_ssh_common_args": f"-o UserKnownHostsFile={rig.state}/known_hosts"}
    inventory = gpuctl.inventory({host.name: known})
    drift = ("drift", "--inventory", inventory, "--profile", gpuctl.profile(FEW), "--output", "json")
    config, login = gpuctl.home / "ansible.cfg", f"remote_user = admin\nprivate_key_file = {rig.state}/id_ed25519\n"
    config.write_text(f"[defaults]\n{login}[privilege_escalation]\nbecome = true\n")
    junit = gpuctl(*drift[:-1], "junit")
    assert (junit.code, set(valid_junit(junit.out).values())) == (1, {"failure"})
    config.write_text(f"[defaults]\n{login}")
    assert gpuctl(*drift).hosts[host.name]["error"]["wrong"] == "this needs root on the host"


@pytest.mark.parametrize("way", WAYS)
def test_each_host_gets_the_profile_that_the_inventory_names(gpuctl: Gpuctl, hosts: Hosts, way: str) -> None:
    pair = hosts(2, machine="generic")
    ways_in = {}
    for number, host in enumerate(pair, 1):
        (gpuctl.home / str(number)).mkdir()
        # Of the same name, in two places.
        profile = gpuctl.profile({"sysctl.vm.swappiness": number}, name=f"{number}/site")
        ways_in[host.name] = reach(host, host_profile_name=str(profile))
    assert gpuctl("tune-nodes", "-i", gpuctl.inventory(ways_in), "--via", way).code == 0
    assert [host.read("/proc/sys/vm/swappiness") for host in pair] == ["1\n", "2\n"]


def test_the_users_ansible_cfg_counts_where_ansible_runs(gpuctl: Gpuctl, host: TestHost) -> None:
    become = "[privilege_escalation]\nbecome = true\n"
    (gpuctl.home / "ansible.cfg").write_text(f"[defaults]\nremote_user = admin\n{become}")
    exposed_ports = reach(host)
    del exposed_ports["ansible_user"]
    words = ("-i", gpuctl.inventory({host.name: exposed_ports}), "-p", gpuctl.profile({"sysctl.vm.swappiness": 1}))
    assert gpuctl("tune-nodes", *words, "--via", "ansible").code == 0
    assert "Accepted publickey for admin" in host.run("journalctl", "--unit", "ssh").stdout


@pytest.mark.parametrize("way", WAYS)
def test_a_banner_and_a_noisy_shell_are_no_answer(gpuctl: Gpuctl, rig: Rig, host: TestHost, way: str) -> None:
    noise = "echo 'Welcome to {\"gpuctl\": 1}'; echo 'This host is watched.' >&2\n"
    for path in ("/root/.bashrc", "/root/.profile", "/etc/profile.d/noise.sh"):
        host.write(path, noise)
    host.write("/etc/issue.net", "Only for those who are asked to be here.\n")
    host.write("/etc/ssh/sshd_config.d/20-banner.conf", "Banner /etc/issue.net\nPrintMotd yes\n")
    host.run("systemctl", "restart", "ssh")
    profile = gpuctl.profile({"sysctl.vm.swappiness": 1})
    said = gpuctl("tune-nodes", "--inventory", rig.inventory(), "--profile", profile, "--via", way)
    assert said.code == 0
    assert host.read("/proc/sys/vm/swappiness") == "1\n"
