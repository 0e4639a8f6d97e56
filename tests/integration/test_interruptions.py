"""Hosts that hang, runs that meet and runs that are broken off: what they leave on the hosts and here."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl, reach
from tests.rig.host import wait_until

SWAPPINESS = "/proc/sys/vm/swappiness"
FEW = {"sysctl.vm.swappiness": 1, "sysctl.net.ipv4.tcp_keepalive_time": 300, "thp.enabled": "never"}
WAYS = ("ssh", "ansible")


def test_a_host_that_does_not_answer_is_given_up_and_named(gpuctl: Gpuctl, rig: Rig, hosts: Hosts) -> None:
    silent, well = hosts(2, machine="generic")
    frozen = rig.plot.cgroup / silent.name / "host/cgroup.freeze"
    frozen.write_text("1")
    said = gpuctl("tune-nodes", "-i", rig.inventory(), "-p", gpuctl.profile(FEW), "--timeout", "2", "-o", "json")
    frozen.write_text("0")
    assert said.code == 3
    assert said.hosts[silent.name]["status"] == "unreachable"
    assert said.hosts[silent.name]["error"]["wrong"] == "it gave no answer within 2 s"
    assert said.hosts[well.name]["status"] == "changed"


@pytest.mark.parametrize("way", WAYS)
def test_a_host_that_hangs_at_work_is_given_up_and_named(gpuctl: Gpuctl, rig: Rig, hosts: Hosts, way: str) -> None:
    hanging, well = hosts(2, machine="generic")
    hanging.tree.hang(SWAPPINESS)
    words = ("-i", rig.inventory(), "-p", gpuctl.profile(FEW), "--via", way, "-o", "json")
    said = gpuctl("tune-nodes", *words, "--timeout", "2")
    assert said.code == 3
    assert said.hosts[hanging.name]["error"]["wrong"] == "it gave no answer within 20 s"
    assert said.hosts[well.name]["status"] == "changed"
    assert gpuctl.processes() == []
    assert gpuctl.private_folders() == []

    hanging.tree.release()
    _completes(gpuctl, hanging, words)


@pytest.mark.parametrize("way", WAYS)
def test_a_host_that_dies_while_it_is_changed_is_given_up_soon(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, way: str
) -> None:
    host.tree.hang(SWAPPINESS)
    quick = "-o ServerAliveInterval=1 -o ServerAliveCountMax=2"  # it would take a minute otherwise
    reachable = reach(host)
    reachable["ansible_ssh_common_args"] = f"{reachable['ansible_ssh_common_args']} {quick}"
    words = ("-i", gpuctl.inventory({host.name: reachable}), "-p", gpuctl.profile(FEW), "--via", way, "-o", "json")
    running = gpuctl.start("tune-nodes", *words)
    _wait_for_lock(host)
    assert [line for line in gpuctl.processes() if "ServerAliveInterval=15" in line]
    frozen = rig.plot.cgroup / host.name / "host/cgroup.freeze"
    frozen.write_text("1")
    try:
        said = gpuctl.said(running)
    finally:
        frozen.write_text("0")
        host.tree.release()
    assert said.code == 3
    assert said.hosts[host.name]["status"] == "unreachable"
    error = said.hosts[host.name]["error"]
    assert error["wrong"].startswith("the connection was lost (Timeout, server ")
    assert "finishes a change that it has started" in error["hint"]


@pytest.mark.parametrize("python", ["/usr/bin/python3", "auto"])
@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_is_killed_on_its_host_is_no_host_that_cannot_be_reached(
    gpuctl: Gpuctl, host: TestHost, way: str, python: str
) -> None:
    host.tree.hang(SWAPPINESS)
    inventory = gpuctl.inventory({host.name: {**reach(host), "ansible_python_interpreter": python}})
    words = ("-i", inventory, "-p", gpuctl.profile(FEW), "--via", way, "-o", "json")
    running = gpuctl.start("tune-nodes", *words)
    _wait_for_lock(host)
    host.run("pkill", "--signal", "KILL", "--exact", "python3")
    host.tree.release()
    said = gpuctl.said(running)
    assert said.code == 3
    assert said.hosts[host.name]["status"] == "failed"
    assert said.hosts[host.name]["error"]["wrong"] == "our program was killed on the host (out of memory?)"
    _completes(gpuctl, host, words)


@pytest.mark.parametrize("way", WAYS)
def test_a_second_run_says_who_is_at_work(gpuctl: Gpuctl, rig: Rig, host: TestHost, way: str) -> None:
    host.tree.hang(SWAPPINESS)
    words = ("tune-nodes", "-i", rig.inventory(), "-p", gpuctl.profile(FEW))
    first = gpuctl.start(*words, "--via", "ssh", SUDO_USER="ada")
    _wait_for_lock(host)
    second = gpuctl(*words, "--via", way, "-o", "json")
    host.tree.release()
    first.communicate(timeout=30)
    assert first.returncode == 0
    assert second.code == 3
    told = second.hosts[host.name]
    assert told["status"] == "failed"
    assert told["error"]["wrong"].startswith("ada@")
    assert " has been at work on this host since 20" in told["error"]["wrong"]
    assert "wait for it to end" in told["error"]["wrong"] + told["error"]["hint"]


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_half_way_leaves_nothing_here_and_no_half_written_host(
    gpuctl: Gpuctl, rig: Rig, hosts: Hosts, way: str
) -> None:
    done, hanging = hosts(2, machine="generic")
    hanging.tree.hang(SWAPPINESS)
    words = ("-i", rig.inventory(), "-p", gpuctl.profile(FEW), "--via", way)
    running = gpuctl.start("tune-nodes", *words)
    _wait_for_lock(hanging)
    _until_line(running, f"{done.name}: changed")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)

    assert running.returncode == 130
    assert f"done: {done.name}\nstarted, outcome unknown: {hanging.name}\nnot started: none\n" in err
    assert "interrupted" in err
    assert gpuctl.processes() == []
    assert gpuctl.private_folders() == []
    (run,) = gpuctl("runs", "-o", "json").json
    assert (run["exit_code"], done.name in run["hosts"]) == (130, True)
    assert gpuctl("runs", "show", run["name"], "-o", "json").json["hosts"][hanging.name]["status"] == "unfinished"
    assert hanging.run("find", "/etc", "/usr/local", "/var/lib/gpuctl", "-name", ".*.gpuctl").stdout == ""

    hanging.tree.release()
    _completes(gpuctl, hanging, words)


def test_a_run_that_is_killed_is_in_the_history(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    host.tree.hang(SWAPPINESS)
    words = ("-i", rig.inventory(), "-p", gpuctl.profile(FEW), "--via", "ssh")
    running = gpuctl.start("tune-nodes", *words)
    _wait_for_lock(host)
    running.kill()
    running.communicate(timeout=20)
    (run,) = gpuctl("runs", "-o", "json").json
    assert run["exit_code"] is None
    assert gpuctl("runs", "show", run["name"], "-o", "json").json["hosts"][host.name]["status"] == "unfinished"
    assert gpuctl("runs").out.splitlines()[1].split()[3] == "-"
    host.tree.release()
    _completes(gpuctl, host, words)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_ended_while_hosts_are_asked_changes_nothing(gpuctl: Gpuctl, rig: Rig, host: TestHost, way: str) -> None:
    frozen = rig.plot.cgroup / host.name / "host/cgroup.freeze"
    frozen.write_text("1")
    running = gpuctl.start("tune-nodes", "-i", rig.inventory(), "-p", gpuctl.profile(FEW), "--via", way)
    wait_until(lambda: any(line.startswith("ssh ") for line in gpuctl.processes()), 20, "no ssh is started")
    running.terminate()
    _, err = running.communicate(timeout=20)
    frozen.write_text("0")
    assert running.returncode == 130
    started, waiting = ("none", host.name) if way == "ssh" else (host.name, "none")  # Ansible is not asked first
    assert f"done: none\nstarted, outcome unknown: {started}\nnot started: {waiting}\n" in err
    assert host.tree.writes() == []
    assert gpuctl.processes() == []
    assert gpuctl.private_folders() == []


def test_a_connection_that_ends_before_the_change_is_opened_again(gpuctl: Gpuctl, rig: Rig, hosts: Hosts) -> None:
    quick, slow = hosts(2, machine="generic")
    frozen = rig.plot.cgroup / slow.name / "host/cgroup.freeze"
    frozen.write_text("1")
    running = gpuctl.start("tune-nodes", "-i", rig.inventory(), "-p", gpuctl.profile(FEW), "--via", "ssh")
    _until_line(running, f"{quick.name}: differs")
    assert quick.tree.writes() == []
    quick.run("pkill", "-f", "sshd: root@notty")
    frozen.write_text("0")
    running.communicate(timeout=30)
    assert running.returncode == 0
    assert [host.read(SWAPPINESS) for host in (quick, slow)] == ["1\n", "1\n"]


def test_secrets_stay_out_of_the_private_folder(gpuctl: Gpuctl, rig: Rig, host: TestHost) -> None:
    host.tree.hang(SWAPPINESS)
    words = ("tune-nodes", "-i", rig.inventory(), "-p", gpuctl.profile(FEW), "--via", "ansible")
    running = gpuctl.start(*words, SITE="hush-hush-4711")
    _wait_for_lock(host)
    (folder,) = gpuctl.private_folders()
    assert folder.stat().st_mode & 0o777 == 0o700
    files = [path for path in gpuctl.temporary.rglob("*") if path.is_file()]
    assert any(path.name == "variables.json" for path in files)
    assert [path for path in files if b"hush-hush-4711" in path.read_bytes()] == []
    assert not any("hush-hush-4711" in line for line in gpuctl.processes())
    host.tree.release()
    running.communicate(timeout=30)
    assert running.returncode == 0
    assert list(gpuctl.temporary.iterdir()) == []


def _wait_for_lock(host: TestHost) -> None:
    """Until a run is at work on the host, in the middle of its changes."""
    wait_until(lambda: host.exists("/var/lib/gpuctl/records/000001.json"), 120, "no run has begun")


def _until_line(running: subprocess.Popen[str], text: str) -> None:
    assert running.stderr is not None
    while text not in (line := running.stderr.readline()):
        assert line, f"it ended without saying {text!r}"


def _completes(gpuctl: Gpuctl, host: TestHost, words: tuple[object, ...]) -> None:
    """The run that was given up ends on its host by itself; the next one finds everything done, or does the rest."""
    wait_until(lambda: not host.run("pgrep", "-x", "python3", check=False).stdout, 20, "the old run does not end")
    assert gpuctl("tune-nodes", *words).code == 0
    assert host.read(SWAPPINESS) == "1\n"
    host.tree.clear()
    assert gpuctl("tune-nodes", *words).code == 0
    assert host.tree.writes() == []
