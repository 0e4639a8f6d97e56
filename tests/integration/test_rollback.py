"""rollback, drift and runs on real hosts: everything goes back, some of it, and nothing that is not ours."""

from __future__ import annotations

import pytest
import yaml

from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl
from tests.rig.snapshots import disk, etc, kernel

SWAPPINESS, KEEPALIVE = "/proc/sys/vm/swappiness", "/proc/sys/net/ipv4/tcp_keepalive_time"
OURS = "/etc/sysctl.d/99-zz-gpuctl.conf"
TWO = {"sysctl.vm.swappiness": 1, "sysctl.net.ipv4.tcp_keepalive_time": 300}


def test_the_training_profile_settles_in_one_run_and_goes_back_byte_for_byte(
    gpuctl: Gpuctl, rig: Rig, host: TestHost
) -> None:
    for program in ("nvidia-smi", "swapon", "swapoff"):
        host.standin(program)
    host.boots_by_grub()
    host.write(OURS, "# kept by hand\nvm.overcommit_memory = 1\n")
    files, values = etc(host), kernel(host)
    words = ("--inventory", rig.inventory(), "--output", "json")
    tune = ("tune-nodes", *words, "--profile", "training")
    tuned = gpuctl(*tune).hosts[host.name]
    assert [knob for knob in tuned["knobs"] if knob["state"] not in ("ok", "pending", "unsupported")] == []
    changed = {knob["knob"] for knob in tuned["knobs"] if knob["changed"]}
    assert {"sysctl.vm.swappiness", "swap.off", "thp.enabled", "cpu.governor", "irq.balance"} <= changed
    assert {name.partition(".")[0] for name in changed} >= {"limits", "cmdline", "modprobe", "program"}

    written = disk(host)
    host.tree.clear()
    assert not any(knob["changed"] for knob in gpuctl(*tune).hosts[host.name]["knobs"])
    checked = gpuctl("rollback", *words, "--check")
    assert (disk(host), host.tree.writes()) == (written, [])
    planned = {knob["knob"]: knob["steps"] for knob in checked.hosts[host.name]["knobs"]}
    assert planned.keys() == changed

    back = gpuctl("rollback", *words)
    assert back.code == 0
    assert {knob["knob"]: knob["steps"] for knob in back.hosts[host.name]["knobs"]} == planned
    assert kernel(host) == values
    assert etc(host) == files


def test_only_some_knobs_go_back(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    words = ("--inventory", rig.inventory(), "--via", "ssh")
    assert gpuctl("tune-nodes", *words, "--profile", gpuctl.profile(TWO)).code == 0
    assert gpuctl("rollback", *words, "--only", "sysctl.vm.*").code == 0
    assert (host.read(SWAPPINESS), host.read(KEEPALIVE)) == ("60\n", "300\n")
    assert "keepalive_time = 300" in host.read(OURS)
    assert "swappiness" not in host.read(OURS)

    unknown = gpuctl("rollback", *words, "--only", "swap.off")
    assert unknown.code == 3
    assert "gpuctl has not changed swap.off here" in unknown.out


def test_back_to_the_state_after_an_earlier_run(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    words = ("--inventory", rig.inventory(), "--via", "ssh")
    for value in (10, 1):
        profile = gpuctl.profile({**TWO, "sysctl.vm.swappiness": value})
        assert gpuctl("tune-nodes", *words, "--profile", profile).code == 0
    assert gpuctl("rollback", *words, "--to", "000001").code == 0
    assert (host.read(SWAPPINESS), host.read(KEEPALIVE)) == ("10\n", "300\n")
    assert gpuctl("rollback", *words).code == 0
    assert host.read(SWAPPINESS) == "60\n"  # what was there first, not what an earlier run of ours made of it
    assert not host.exists(OURS)


def test_what_somebody_else_changed_since_is_left_alone_unless_forced(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    words = ("--inventory", rig.inventory(), "--via", "ssh", "--output", "json")
    assert gpuctl("tune-nodes", *words, "--profile", gpuctl.profile(TWO)).code == 0
    host.tree.set(SWAPPINESS, "33\n")

    said = gpuctl("rollback", *words)
    assert said.code == 1
    knobs = {knob["knob"]: knob for knob in said.hosts[host.name]["knobs"]}
    assert knobs["sysctl.vm.swappiness"]["state"] == "conflict"
    assert "is 33, neither ours (1) nor what it was" in knobs["sysctl.vm.swappiness"]["reason"]
    assert knobs["sysctl.net.ipv4.tcp_keepalive_time"]["changed"]
    assert (host.read(SWAPPINESS), host.read(KEEPALIVE)) == ("33\n", "7200\n")

    assert gpuctl("rollback", *words, "--force").code == 0
    assert host.read(SWAPPINESS) == "60\n"
    assert '"before": "33"' in host.read("/var/lib/gpuctl/records/000003.json")


def test_a_knob_taken_out_of_the_profile_is_put_back(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    words = ("--inventory", rig.inventory(), "--via", "ssh")
    assert gpuctl("tune-nodes", *words, "--profile", gpuctl.profile(TWO)).code == 0
    smaller = gpuctl.profile({"sysctl.vm.swappiness": 1})
    checked = gpuctl("tune-nodes", *words, "--profile", smaller, "--check", "--diff")
    assert "sysctl.net.ipv4.tcp_keepalive_time: 300 -> back to 7200" in checked.out
    assert "sysctl.vm.swappiness" not in checked.out
    assert gpuctl("tune-nodes", *words, "--profile", smaller).code == 0
    assert (host.read(SWAPPINESS), host.read(KEEPALIVE)) == ("1\n", "7200\n")
    assert host.read(OURS).splitlines()[1:] == ["vm.swappiness = 1"]


def test_drift_tells_order_difference_and_silence_by_its_exit_code(gpuctl: Gpuctl, rig: Rig, hosts: Hosts) -> None:
    steady, moved = hosts(2, machine="generic")
    words = ("--inventory", rig.inventory(), "--profile", gpuctl.profile(TWO))
    assert gpuctl("tune-nodes", *words, "--via", "ssh").code == 0
    assert gpuctl("drift", *words).code == 0
    moved.tree.set(SWAPPINESS, "60\n")
    moved.tree.clear()
    said = gpuctl("drift", *words, "--output", "json")
    assert said.code == 1
    assert {name: host["status"] for name, host in said.hosts.items()} == {"h1": "ok", "h2": "differs"}
    assert moved.tree.writes() == []
    steady.pause()
    assert gpuctl("drift", *words, "--timeout", "3").code == 3


def test_runs_are_on_record_with_what_changed_where(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    words = ("--inventory", rig.inventory(), "--via", "ssh")
    profile = gpuctl.profile(TWO)
    assert gpuctl("tune-nodes", *words, "--profile", profile, "--check").code == 0
    assert gpuctl("runs").out.splitlines()[1:] == []  # looking is no run
    assert gpuctl("tune-nodes", *words, "--profile", profile, SUDO_USER="ada").code == 0
    assert gpuctl("rollback", *words).code == 0
    first, second = gpuctl("runs", "--output", "json").json
    assert first["actor"].startswith("ada@")
    assert (first["hosts"], first["exit_code"]) == ([host.name], 0)
    assert second["command"][0] == "rollback"
    shown = yaml.safe_load(gpuctl("runs", "show", first["name"]).out)
    changed = [knob["knob"] for knob in shown["hosts"][host.name]["knobs"] if knob["changed"]]
    assert changed == list(TWO)
    assert gpuctl("runs", "show", "nothing").code == 2
    assert (gpuctl.home / ".local/state/gpuctl/runs").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("command", ["tune-nodes", "rollback"])
def test_nothing_of_this_machine_is_changed_unasked(gpuctl: Gpuctl, command: str) -> None:
    said = gpuctl(command)
    assert said.code == 2
    assert "cannot change this machine: standard input is not a terminal" in said.err
