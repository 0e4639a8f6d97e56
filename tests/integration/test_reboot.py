"""What stands again after a reboot, and reboots that gpuctl itself asks for."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpuctl.hosts import plan
from gpuctl.workflows import host_reboot
from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl, reach
from tests.rig.host import wait_until

KERNEL_LINE = {"cmdline.iommu": "pt", "sysctl.vm.swappiness": 1}
PROCESSES = "/var/lib/standins/nvidia-smi/processes.csv"
RUNTIME = {
    "sysctl.vm.swappiness": 1,
    "sysctl.vm.dirty_bytes": "8GiB",
    "sysctl.net.ipv4.tcp_keepalive_time": 300,
    "thp.enabled": "never",
    "cpu.governor": "performance",
    "cpu.idle_latency_us": 99,
    "irq.balance": "off",
    "irq.affinity": "node",
    "swap.off": "off",
}


def test_the_values_stand_again_after_a_reboot(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    for program in ("nvidia-smi", "swapoff", "swapon"):
        host.standin(program)
    words = ("--inventory", rig.inventory(), "--profile", gpuctl.profile(RUNTIME))
    assert gpuctl("tune-nodes", *words, "--via", "ssh").code == 0
    host.reboot()
    _wait_until_booted(host)
    said = gpuctl("drift", *words, "--output", "json")
    assert set(_states(said.hosts[host.name]).values()) == {"ok"}
    assert said.code == 0
    assert host.read("/proc/sys/vm/swappiness") == "1\n"
    assert "[never]" in host.read("/sys/kernel/mm/transparent_hugepage/enabled")
    assert host.read("/sys/devices/system/cpu/cpu63/cpufreq/scaling_governor") == "performance\n"
    assert len(host.read("/proc/swaps").splitlines()) == 1


def test_after_a_rollback_a_reboot_brings_nothing_of_ours_back(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    words = ("--inventory", rig.inventory(), "--via", "ssh")
    profile = gpuctl.profile({"sysctl.vm.swappiness": 1, "thp.enabled": "never"})
    assert gpuctl("tune-nodes", *words, "--profile", profile).code == 0
    assert gpuctl("rollback", *words).code == 0
    host.reboot()
    _wait_until_booted(host)
    assert host.read("/proc/sys/vm/swappiness") == "60\n"
    assert "[madvise]" in host.read("/sys/kernel/mm/transparent_hugepage/enabled")


def test_a_unit_wins_after_a_reboot_as_predicted_and_sysctl_conf_does_not(
    gpuctl: Gpuctl, rig: Rig, host: TestHost
) -> None:
    unit = (
        "[Service]\nType=oneshot\nExecStart=/sbin/sysctl -w vm.swappiness=33\n[Install]\nWantedBy=multi-user.target\n"
    )
    host.write("/etc/systemd/system/site.service", unit)
    host.run("systemctl", "enable", "site.service")
    host.write("/etc/sysctl.conf", "net.ipv4.tcp_keepalive_time = 7200\n")
    knobs = {"sysctl.vm.swappiness": 1, "sysctl.net.ipv4.tcp_keepalive_time": 300}
    words = ("--inventory", rig.inventory(), "--via", "ssh", "--output", "json")
    said = gpuctl("tune-nodes", *words, "--profile", gpuctl.profile(knobs))
    assert list(_states(said.hosts[host.name]).values()) == ["contested", "ok"]
    assert said.hosts[host.name]["knobs"][0]["boot"] == "33"
    host.reboot()
    _wait_until_booted(host)
    assert host.read("/proc/sys/vm/swappiness") == "33\n"
    host.run("sysctl", "--system")
    assert host.read("/proc/sys/net/ipv4/tcp_keepalive_time") == "300\n"
    gpuctl("rollback", *words)
    assert host.read("/etc/sysctl.conf") == "net.ipv4.tcp_keepalive_time = 7200\n"


SYSV = """#!/bin/sh
### BEGIN INIT INFO
# Provides: site
# Default-Start: 2 3 4 5
# Default-Stop:
### END INIT INFO
exec /opt/site/tune "$1"
"""
# Without an accuracy systemd may start it a whole minute later, at a moment that differs by machine.
TIMER = "[Timer]\nOnBootSec=1\nAccuracySec=1us\nUnit=other-name.service\n[Install]\nWantedBy=timers.target\n"


def test_sysv_scripts_and_timers_win_after_a_reboot_as_predicted_and_idle_files_do_not(
    gpuctl: Gpuctl, rig: Rig, host: TestHost
) -> None:
    host.write("/opt/site/tune", "#!/bin/sh\nsysctl -w vm.swappiness=44\n", 0o755)
    host.write("/etc/init.d/site", SYSV, 0o755)
    host.run("update-rc.d", "site", "defaults")
    host.write(
        "/etc/systemd/system/other-name.service", "[Service]\nExecStart=/sbin/sysctl -w vm.max_map_count=77777\n"
    )
    host.write("/etc/systemd/system/site.timer", TIMER)
    host.run("systemctl", "enable", "site.timer")
    host.write("/etc/rc.local", "#!/bin/sh\nsysctl -w net.ipv4.tcp_keepalive_time=55\n", 0o644)
    host.write("/etc/cron.daily/site", "#!/bin/sh\ncat /proc/sys/vm/vfs_cache_pressure >> /var/log/site\n", 0o755)
    knobs = {
        "sysctl.vm.swappiness": 1,
        "sysctl.vm.max_map_count": 1048576,
        "sysctl.net.ipv4.tcp_keepalive_time": 300,
        "sysctl.vm.vfs_cache_pressure": 50,
    }
    words = ("--inventory", rig.inventory(), "--via", "ssh", "--output", "json")
    rows = gpuctl("tune-nodes", *words, "--profile", gpuctl.profile(knobs)).hosts[host.name]["knobs"]
    assert {row["knob"]: (row["state"], row["boot"]) for row in rows} == {
        "sysctl.vm.swappiness": ("contested", "44"),
        "sysctl.vm.max_map_count": ("contested", "77777"),
        "sysctl.net.ipv4.tcp_keepalive_time": ("ok", "300"),
        "sysctl.vm.vfs_cache_pressure": ("ok", "50"),
    }
    host.reboot()
    _wait_until_booted(host)
    wait_until(lambda: host.read("/proc/sys/vm/max_map_count") == "77777\n", 30, "the timer does not elapse")
    assert host.read("/proc/sys/vm/swappiness") == "44\n"
    assert host.read("/proc/sys/net/ipv4/tcp_keepalive_time") == "300\n"
    assert host.read("/proc/sys/vm/vfs_cache_pressure") == "50\n"


def test_hosts_are_rebooted_one_after_the_other_and_busy_ones_not_at_all(
    gpuctl: Gpuctl, rig: Rig, hosts: Hosts
) -> None:
    first, second, busy = fleet = hosts(3, machine="generic")
    for host in fleet:
        host.boots_by_grub()
        host.standin("nvidia-smi")
    busy.write(PROCESSES, "4711, python3, 1024, GPU-3f1c0000-0000-4000-8000-000000000000\n")
    boots = {host.name: _boot_id(host) for host in fleet}
    words = ("--inventory", rig.inventory(), "--profile", gpuctl.profile(KERNEL_LINE), "--output", "json")

    running = gpuctl.start("tune-nodes", *words, "--reboot")
    assert _most_down_at_once(running, fleet) == 1
    said = gpuctl.said(running)
    told = {name: (host["status"], _states(host)) for name, host in said.hosts.items()}
    assert told[first.name] == told[second.name] == ("changed", {"cmdline.iommu": "ok", "sysctl.vm.swappiness": "ok"})
    assert told[busy.name] == ("problems", {"cmdline.iommu": "pending", "sysctl.vm.swappiness": "ok"})
    assert said.hosts[busy.name]["error"]["wrong"].startswith("not rebooted: 1 processes on GPUs")
    assert said.code == 1
    assert [host.name for host in fleet if _boot_id(host) != boots[host.name]] == [first.name, second.name]
    for host in (first, second):
        assert "iommu=pt" in host.read("/proc/cmdline")
        assert host.read("/proc/sys/vm/swappiness") == "1\n"

    # Nothing differs there any more, only the reboot is due.
    allowed = gpuctl("tune-nodes", *words, "--reboot", "--limit", busy.name, "--allow-busy")
    assert (allowed.code, allowed.hosts[busy.name]["status"]) == (0, "ok")
    assert "iommu=pt" in busy.read("/proc/cmdline")


def test_a_host_that_does_not_come_back_is_the_last_to_be_rebooted(gpuctl: Gpuctl, rig: Rig, hosts: Hosts) -> None:
    fleet = hosts(2, machine="generic")
    for host in fleet:
        host.boots_by_grub()
        host.standin("nvidia-smi")
    lost, spared = fleet
    # Its sshd is not started any more: for everybody else the host is gone.
    lost.run("systemctl", "disable", "ssh.service")
    inventory = gpuctl.inventory({lost.name: reach(lost, host_profile_reboot_timeout=3), spared.name: reach(spared)})
    boot = _boot_id(spared)
    words = ("--inventory", inventory, "--profile", gpuctl.profile(KERNEL_LINE), "--reboot", "--output", "json")
    said = gpuctl("tune-nodes", *words)
    assert said.code == 3
    assert said.hosts[lost.name]["status"] == "unreachable"
    assert [knob["knob"] for knob in said.hosts[lost.name]["knobs"] if knob["changed"]] == list(KERNEL_LINE)
    assert said.hosts[spared.name]["status"] == "problems"
    assert said.hosts[spared.name]["error"]["wrong"] == f"not rebooted, because {lost.name} did not come back"
    assert _boot_id(spared) == boot


def test_a_roll_out_reboots_over_ssh_and_leaves_a_busy_host(
    rig: Rig, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, busy = fleet = hosts(2, machine="generic")
    for host in fleet:
        host.standin("nvidia-smi")
    busy.write(PROCESSES, "4711, python3, 1024, GPU-3f1c0000-0000-4000-8000-000000000000\n")
    boots = {host.name: _boot_id(host) for host in fleet}
    monkeypatch.setattr(host_reboot, "POLL_S", 0.5)
    ends = host_reboot.reboot(plan.targets(Path(rig.inventory())), "driver", forks=2, limit_s=60)
    assert ends[free.name] == ""
    assert ends[busy.name].startswith("not rebooted: 1 processes on GPUs")
    assert (_boot_id(free) != boots[free.name], _boot_id(busy)) == (True, boots[busy.name])


def _states(host: dict[str, Any]) -> dict[str, str]:
    return {knob["knob"]: knob["state"] for knob in host["knobs"]}


def _boot_id(host: TestHost) -> str:
    return host.read("/proc/sys/kernel/random/boot_id")


def _wait_until_booted(host: TestHost) -> None:
    def settled() -> bool:
        return host.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded")

    wait_until(settled, 30, f"{host.name} does not finish to boot")


def _most_down_at_once(running: subprocess.Popen[str], fleet: list[TestHost]) -> int:
    """How many hosts answered nobody at the same time, while a command ran."""
    most = 0
    while running.poll() is None:
        most = max(most, sum(not _answers(host) for host in fleet))
        time.sleep(0.05)
    return most


def _answers(host: TestHost) -> bool:
    try:
        with socket.create_connection((host.ip, 22), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
