"""tune-nodes on real hosts, the default way: check, apply, apply again, and what is printed."""

from __future__ import annotations

import os
import pty
import shutil
from typing import Any

import yaml

from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl, Said
from tests.rig.snapshots import disk

FEW = {
    "sysctl.vm.swappiness": 1,
    "sysctl.net.ipv4.tcp_keepalive_time": 300,
    "thp.enabled": "never",
    "cpu.governor": "performance",
}

OUTSIDE = {"ansible", "ansible_runner", "boto3", "botocore", "kubernetes"}


def steps(knobs: list[dict[str, Any]], word: str) -> dict[str, Any]:
    """The steps of each knob that `differs`, or was `changed`."""
    return {k["knob"]: k["steps"] for k in knobs if (k["state"] == "differs" if word == "differs" else k["changed"])}


def test_check_tells_what_apply_changes_and_a_second_apply_changes_nothing(
    gpuctl: Gpuctl, rig: Rig, hosts: Hosts
) -> None:
    pair = hosts(2, machine="generic")
    tune = ("tune-nodes", "--inventory", rig.inventory(), "--profile", gpuctl.profile(FEW), "--output", "json")
    before = [disk(host) for host in pair]

    checked = gpuctl(*tune, "--check")
    assert checked.code == 0
    assert [host.tree.writes() for host in pair] == [[], []]
    assert [disk(host) for host in pair] == before
    planned = {name: steps(host["knobs"], "differs") for name, host in checked.hosts.items()}
    assert planned["h1"].keys() >= FEW.keys()

    applied = gpuctl(*tune)
    assert applied.code == 0
    assert {name: steps(host["knobs"], "changed") for name, host in applied.hosts.items()} == planned
    for host in pair:
        assert host.read("/proc/sys/vm/swappiness") == "1\n"
        assert host.read("/proc/sys/net/ipv4/tcp_keepalive_time") == "300\n"
        assert "vm.swappiness = 1" in host.read("/etc/sysctl.d/99-zz-gpuctl.conf")
        assert "[never]" in host.read("/sys/kernel/mm/transparent_hugepage/enabled")
        host.tree.clear()

    settled = [disk(host) for host in pair]
    again = gpuctl(*tune)
    assert again.code == 0
    assert [host["status"] for host in again.hosts.values()] == ["ok", "ok"]
    assert not any(knob["changed"] for host in again.hosts.values() for knob in host["knobs"])
    assert [host.tree.writes() for host in pair] == [[], []]
    assert [disk(host) for host in pair] == settled


def test_a_diff_shows_each_setting_before_and_after_and_why(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    profile = gpuctl.profile({"sysctl.vm.swappiness": 1, "thp.enabled": "never"})
    said = gpuctl("tune-nodes", "--inventory", rig.inventory(), "--profile", profile, "--check", "--diff")
    assert said.code == 0
    assert "sysctl.vm.swappiness: 60 now, kernel default after reboot -> 1" in said.out
    assert "why: a test" in said.out
    assert "/proc/sys/vm/swappiness\n        - 60\n        + 1\n" in said.out
    assert "vm.swappiness in /etc/sysctl.d/99-zz-gpuctl.conf\n        - absent\n        + 1\n" in said.out
    assert "/sys/kernel/mm/transparent_hugepage/enabled\n        - madvise\n        + never\n" in said.out
    assert "1 host: 1 differs" in said.out
    assert "h1: differs" in said.err  # progress: a line a host where nobody watches


def test_json_and_yaml_carry_the_same(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    profile = gpuctl.profile(FEW)
    tune = ("tune-nodes", "--inventory", rig.inventory(), "--profile", profile, "--check", "--output")
    as_json, as_yaml = gpuctl(*tune, "json").json, yaml.safe_load(gpuctl(*tune, "yaml").out)
    for said in (as_json, as_yaml):
        assert said["hosts"][0].pop("seconds") > 0
    assert as_json == as_yaml


def test_a_terminal_gets_a_live_table_and_then_the_result(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    ours, theirs = pty.openpty()
    words = ("tune-nodes", "--inventory", rig.inventory(), "--profile", gpuctl.profile(FEW), "--check")
    running = gpuctl.start(*words, stderr=theirs, TERM="xterm")
    os.close(theirs)
    out, _ = running.communicate(timeout=60)
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "waiting for 1: h1" in drawn
    assert f"differs ({len(FEW) + 1} settings to change)" in drawn.rpartition("waiting for")[2]
    assert drawn.startswith("\x1b[?25l")  # the cursor is hidden meanwhile
    assert "\x1b[?25h" in drawn
    assert "\x1b" not in out
    assert "1 host: 1 differs" in out


def test_a_fleet_in_order_costs_one_login_a_host_and_no_ansible(gpuctl: Gpuctl, rig: Rig, hosts: Hosts) -> None:
    pair = hosts(2, machine="generic")
    words = ("--inventory", rig.inventory(), "--profile", gpuctl.profile(FEW))
    assert gpuctl("tune-nodes", *words, "--via", "ssh").code == 0
    shutil.rmtree(gpuctl.home / ".ansible")  # ansible-core's own, made while it read the inventory for the first time
    logins = [_logins(host) for host in pair]

    for number, command in enumerate(("tune-nodes", "drift"), 1):
        said = gpuctl(command, *words, PYTHONPROFILEIMPORTTIME="1")
        assert said.code == 0
        assert [_logins(host) for host in pair] == [known + number for known in logins]
        assert "gpuctl" in _imported(said)
        assert not _imported(said) & OUTSIDE
    assert not (gpuctl.home / ".ansible").exists()

    # Ansible logs in to the one that differs, and to no other.
    steady, moved = pair
    moved.tree.set("/proc/sys/vm/swappiness", "60\n")
    known = [_logins(host) for host in pair]
    assert gpuctl("tune-nodes", *words).code == 0
    assert moved.read("/proc/sys/vm/swappiness") == "1\n"
    assert [_logins(steady) - known[0], _logins(moved) - known[1]] == [1, 2]

    # Over ssh alone, the login that compares a host changes it, too.
    moved.tree.set("/proc/sys/vm/swappiness", "60\n")
    known = [_logins(host) for host in pair]
    assert gpuctl("tune-nodes", *words, "--via", "ssh").code == 0
    assert moved.read("/proc/sys/vm/swappiness") == "1\n"
    assert [_logins(steady) - known[0], _logins(moved) - known[1]] == [1, 1]


def test_help_imports_nothing_of_the_outside(gpuctl: Gpuctl) -> None:
    said = gpuctl("--help", PYTHONPROFILEIMPORTTIME="1")
    assert said.code == 0
    assert "gpuctl" in _imported(said)
    assert not _imported(said) & {*OUTSIDE, "rich", "yaml"}


def _logins(host: TestHost) -> int:
    return host.run("journalctl", "--unit", "ssh", "--output", "cat").stdout.count("Accepted publickey")


def _imported(said: Said) -> set[str]:
    """The packages that Python says it has imported."""
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in said.err.splitlines() if "|" in line}
