"""Users of GPUs on real hosts: processes in systemd's slices, login sessions and below sudo, asked for over ssh.

Stand-in: nvidia-smi (the rig's), whose list of processes points at true pids of the host.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.nodes import command
from gpuctl.hosts.model import Target
from gpuctl.nodes.model import Node, State, User
from gpuctl.workflows import nodes as flow
from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost
from tests.rig.gpu_user_trees import row, xml_with
from tests.rig.host import wait_until

Q_XML = "/var/lib/standins/nvidia-smi/q.xml"
SLEEP = "/usr/bin/sleep"


@pytest.fixture
def node(hosts: Hosts) -> TestHost:
    """A p5 whose logins are sessions of logind."""
    [host] = hosts(1, machine="p5")
    host.run("apt-get", "install", "-qq", "-y", "--no-install-recommends", "libpam-systemd")
    host.run("systemctl", "restart", "systemd-logind")
    host.standin("nvidia-smi")
    on_gpus(host, {})
    return host


def targets(hosts: Sequence[TestHost], become: bool = True) -> list[Target]:
    """As the user admin logs in, who becomes root by sudo where `become` is set."""
    state = hosts[0].plot.state
    checks = ("-o", f"UserKnownHostsFile={state}/known_hosts", "-o", "StrictHostKeyChecking=yes")
    return [
        Target(host.name, host.ip, user="admin", key=f"{state}/id_ed25519", ssh_args=checks, become=become)
        for host in hosts
    ]


def on_gpus(host: TestHost, pids: Mapping[int, Sequence[int]]) -> None:
    host.write(Q_XML, xml_with({gpu: [row(pid, SLEEP) for pid in listed] for gpu, listed in pids.items()}))


def pid_of(host: TestHost, mark: str) -> int:
    """Pid, on the host, of the sleep for so many seconds."""
    pids: list[str] = []

    def runs() -> bool:
        pids[:] = host.run("pgrep", "-fx", f"{SLEEP} {mark}", check=False).stdout.split()
        return len(pids) == 1

    wait_until(runs, 20, f"no `sleep {mark}` on {host.name}")
    return int(pids[0])


def ask(hosts: Sequence[TestHost], **more: bool) -> list[Node]:
    fleet = flow.ask(targets(hosts, **more), 64, 30, lambda _: None)
    return flow.use([fleet], recorded=True, notify=lambda _: None)


def by_gpu(node: Node) -> dict[int, User]:
    return {gpu: user for user in node.users for gpu in user.gpus}


def login(host: TestHost, *argv: str) -> None:
    """Leave a program running in a login of admin."""
    script = f"nohup {' '.join(argv)} > /dev/null 2>&1 &"
    host.ssh("sh", "-c", f"{script} exec {SLEEP} 0.2", user="admin")


def test_the_owner_of_each_process_is_right(node: TestHost) -> None:
    before = int(time.time())
    node.run("systemd-run", "--unit=vllm", SLEEP, "1001")
    scope = ["--scope", "--slice=machine.slice", f"--unit=libpod-{'a' * 64}.scope"]
    node.run("systemd-run", *scope, "sh", "-c", f"{SLEEP} 1002 > /dev/null 2>&1 &")
    login(node, SLEEP, "1003")
    login(node, "sudo", SLEEP, "1004")
    node.run("loginctl", "enable-linger", "admin")
    service = ["env", "XDG_RUNTIME_DIR=/run/user/1000", "systemd-run", "--user", "--unit=jupyter", SLEEP, "1005"]
    wait_until(lambda: node.ssh(*service, user="admin", check=False).returncode == 0, 20, "no user manager")
    marks = {0: "1001", 1: "1002", 2: "1003", 3: "1004", 4: "1005"}
    pids = {gpu: pid_of(node, mark) for gpu, mark in marks.items()}
    on_gpus(node, {gpu: [pid] for gpu, pid in pids.items()})
    [one] = ask([node])
    users = by_gpu(one)
    assert {gpu: (users[gpu].kind, users[gpu].person) for gpu in marks} == {
        0: ("service", ""),
        1: ("container", ""),
        2: ("session", "admin"),
        3: ("session", "admin"),
        4: ("user service", "admin"),
    }
    assert users[0].who == "vllm.service"
    assert users[1].who == f"podman {'a' * 12}"
    assert users[2].who.startswith("admin from ")
    assert users[3].who.startswith("admin as root from ")
    for gpu, mark in marks.items():
        [process] = users[gpu].processes
        assert (process.pid, process.command) == (pids[gpu], f"{SLEEP} {mark}")
        assert process.since is not None
        assert before - 3 <= process.since <= time.time() + 3
    assert {gpu.state for gpu in one.gpus[:5]} == {State.USED}


def test_a_rig_host_is_a_container_so_that_no_gpu_is_called_idle(node: TestHost) -> None:
    [one] = ask([node])
    assert {gpu.state for gpu in one.gpus} == {State.UNKNOWN}
    assert "pid namespace" in one.gpus[0].why


def test_a_process_that_ended_or_moved_is_shown_as_it_is_now(node: TestHost) -> None:
    node.run("systemd-run", "--unit=first", SLEEP, "1001")
    pid = pid_of(node, "1001")
    on_gpus(node, {0: [pid]})
    assert by_gpu(ask([node])[0])[0].who == "first.service"
    folder = "/sys/fs/cgroup/system.slice/second.service"
    node.run("sh", "-c", f"mkdir {folder} && echo {pid} > {folder}/cgroup.procs")
    assert by_gpu(ask([node])[0])[0].who == "second.service"
    node.run("kill", "-KILL", str(pid))
    wait_until(lambda: not node.exists(f"/proc/{pid}"), 10, "it lives")
    user = by_gpu(ask([node])[0])[0]
    assert (user.kind, user.who) == ("unknown", "UNKNOWN")


def test_a_secret_in_a_command_line_leaves_no_trace(node: TestHost) -> None:
    secret = "hf_0123456789abcdefghijABCDEF"  # noqa: S105 - made up
    node.run("systemd-run", "--unit=train", "/usr/bin/python3", "-c", "import time; time.sleep(99)", "--token", secret)
    pid = int(node.run("systemctl", "show", "train", "--property=MainPID", "--value").stdout)
    on_gpus(node, {0: [pid]})
    fleet = flow.ask(targets([node]), 64, 30, lambda _: None)
    assert secret not in json.dumps(dict(fleet.nodes))
    assert "<removed>" in fleet.nodes[node.name]["processes"][str(pid)]["command"]


@pytest.mark.parametrize("become", [True, False])
def test_other_users_processes_are_shown_or_said_to_be_hidden(node: TestHost, become: bool) -> None:
    node.run("systemd-run", "--unit=vllm", SLEEP, "1001")
    on_gpus(node, {0: [pid_of(node, "1001")]})
    node.run("mount", "-o", "remount,hidepid=2", "/proc")
    [one] = ask([node], become=become)
    user = by_gpu(one)[0]
    assert (user.kind, one.gpus[0].state) == (("service" if become else "unknown"), State.USED)
    assert {gpu.state for gpu in one.gpus[1:]} == {State.UNKNOWN}


def test_nodes_that_fail_are_unknown_and_delay_nobody(hosts: Hosts, node: TestHost) -> None:
    silent, without_smi, failing = hosts(3, machine="p5")
    [without_python] = hosts(1, machine="p5", python=False)
    failing.standin("nvidia-smi")
    failing.write("/var/lib/standins/nvidia-smi/fails", "Unable to determine the device handle for GPU0000:53:00.0\n")
    node.run("systemd-run", "--unit=vllm", SLEEP, "1001")
    on_gpus(node, {0: [pid_of(node, "1001")]})
    silent.pause()
    started = time.monotonic()
    fleet = flow.ask(targets([node, silent, without_smi, failing, without_python]), 64, 8, lambda _: None)
    seconds = time.monotonic() - started
    silent.resume()
    found = {one.name: one for one in flow.use([fleet], recorded=True, notify=lambda _: None)}
    assert found[node.name].gpus[0].state is State.USED
    assert (found[silent.name].reached, found[without_python.name].reached) == (False, False)
    assert "Python" in found[without_python.name].why or "python" in found[without_python.name].why
    assert found[without_smi.name].why == "nvidia-smi: not on this host"
    assert "device handle" in found[failing.name].why
    assert all(found[name].count(State.IDLE) == 0 for name in found)
    assert seconds < 20


def test_the_command_asks_over_ssh_and_reads_its_own_file(
    node: TestHost, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUCTL_CACHE_DIR", str(tmp_path / "cache"))
    login(node, SLEEP, "1003")
    on_gpus(node, {2: [pid_of(node, "1003")], 5: [pid_of(node, "1003")]})
    saved = tmp_path / "facts.json"
    words = ["--inventory", str(rig.inventory()), "--save", str(saved), "-o", "json"]
    asked = CliRunner().invoke(command.nodes, words)
    assert asked.exit_code == 1, asked.output  # the rig's hosts are containers: the other GPUs are UNKNOWN
    report = json.loads(asked.stdout)
    [user] = report["nodes"][0]["users"]
    assert (user["person"], user["gpus"]) == ("admin", [2, 5])
    again = CliRunner().invoke(command.nodes, ["--from", str(saved), "-o", "json"])
    assert json.loads(again.stdout)["nodes"][0]["users"] == report["nodes"][0]["users"]


def test_nothing_is_left_behind_on_a_node(node: TestHost) -> None:
    ask([node])
    node.tree.clear()
    node.run("touch", "/run/mark")
    ask([node])
    assert node.tree.writes() == []
    folders = ("/etc", "/home", "/tmp", "/opt", "/root")  # noqa: S108 - on the host
    assert node.run("find", *folders, "-newer", "/run/mark", "-type", "f").stdout == ""


def test_the_probe_takes_little_of_a_node(node: TestHost) -> None:
    """Less than 60 MiB, and 0.6 s of processor time with its children."""
    node.run("systemd-run", "--unit=vllm", SLEEP, "1001")
    pid = pid_of(node, "1001")
    on_gpus(node, {gpu: [pid] for gpu in range(8)})
    from ansible_collections.gpuctl.fleet.plugins.plugin_utils.payload import script

    program = script(json.dumps(flow.REQUEST), "token ").decode()
    measured = (
        "\nimport resource\nfor who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):\n"
        " u = resource.getrusage(who); print('used', u.ru_utime + u.ru_stime, u.ru_maxrss)\n"
    )
    done = node.run("python3", "-IS", "-", input=program + measured)
    rows = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("used ")]
    assert len(rows) == 2
    cpu_s, rss_kib = sum(float(one[0]) for one in rows), max(int(one[1]) for one in rows)
    print(f"probe: {cpu_s:.2f} s of processor time, {rss_kib / 1024:.0f} MiB")  # noqa: T201 - a measurement
    assert rss_kib < 60 * 1024
    assert cpu_s < 0.6 * 4  # this machine is shared: four times as slow as a node's processor at worst
