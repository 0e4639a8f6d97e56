"""Drills of `gpuctl nodes kill` on a real host over ssh: nobody but the one shown is ever hit, and the record tells.

Stand-in: nvidia-smi (the rig's), whose list of processes points at true pids of the host.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.cli.nodes import kill as command
from gpuctl.core import run_history
from gpuctl.edges import ssh
from gpuctl.edges.session_program import SessionProgram
from gpuctl.hosts.fan_out import login_of
from gpuctl.hosts.model import Target
from gpuctl.nodes.acts.model import Consent
from gpuctl.nodes.acts.nvitop import Wheel
from gpuctl.nodes.model import Fleet
from gpuctl.workflows import nodes as flow
from gpuctl.workflows import nodes_kill
from gpuctl.workflows.nodes_nvitop import feed
from tests.rig import Rig, TestHost
from tests.rig.gpu_user_trees import row, xml_with
from tests.rig.host import wait_until

Q_XML = "/var/lib/standins/nvidia-smi/q.xml"
# Notes TERM, and goes on.
DEAF = """import signal, time
signal.signal(15, lambda *_: open('/run/got-term', 'w').close())
while True: time.sleep(1)
"""
HANGS = "/proc/sys/vm/swappiness"
# Begins to wait in the kernel once it gets TERM.
STUCK_AT_TERM = """import signal, time
signal.signal(15, lambda *_: open('{path}', 'w').write('60'))
while True: time.sleep(1)
"""
FORCE = Consent(force=True, reason="it blocks the release")


@pytest.fixture(scope="module")
def node(rig: Rig) -> Iterator[TestHost]:
    [host] = rig.up(["kill-1"], machine="p5")
    host.standin("nvidia-smi")
    yield host
    rig.down()


@pytest.fixture(scope="module")
def inventory(node: TestHost, rig: Rig) -> str:
    """The user admin, who becomes root by sudo; read by Ansible once."""
    path = Path(rig.inventory(user="admin"))
    path.write_text(f"{path.read_text().rstrip()}\nansible_become=true\n")
    return str(path)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def as_a_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    """The rig's hosts are containers, inside which gpuctl ends nothing; here their pids are those of nvidia-smi."""
    ask = flow.ask

    def asked(*arguments: Any, **options: Any) -> Fleet:
        fleet = ask(*arguments, **options)
        nodes = {name: {**facts, "pid_namespace": "initial"} for name, facts in fleet.nodes.items()}
        return Fleet(nodes, fleet.unasked, fleet.taken)

    monkeypatch.setattr(flow, "ask", asked)
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUCTL_CACHE_DIR", str(cache))


def target(host: TestHost) -> Target:
    """The user admin, who becomes root by sudo."""
    state = host.plot.state
    checks = ("-o", f"UserKnownHostsFile={state}/known_hosts", "-o", "StrictHostKeyChecking=yes")
    return Target(host.name, host.ip, user="admin", key=f"{state}/id_ed25519", ssh_args=checks, become=True)


def read(host: TestHost, what: str, consent: Consent = FORCE) -> nodes_kill.Kill:
    return nodes_kill.read(target(host), what, "", consent, 30)


def service(host: TestHost, mark: str, *argv: str) -> int:
    """Pid of a program that runs as a service, which is nobody's own."""
    unit = f"work-{mark}"
    host.run("systemd-run", f"--unit={unit}", "--collect", *(argv or ("/usr/bin/sleep", mark)))
    return int(host.run("systemctl", "show", unit, "--property=MainPID", "--value").stdout)


def of_admin(host: TestHost, mark: str) -> int:
    """Pid of a sleep that admin has left running in a login."""
    script = f"nohup /usr/bin/sleep {mark} > /dev/null 2>&1 & echo $!"
    return int(host.ssh("sh", "-c", script, user="admin").stdout)


def on_gpus(host: TestHost, *pids: int) -> None:
    host.write(Q_XML, xml_with({gpu: [row(pid, "python")] for gpu, pid in enumerate(pids)}))


def lose_connections(host: TestHost) -> None:
    """End the logins of admin on the host's side, without a word to ours."""
    logins = host.run("pgrep", "-f", "sshd.*: admin").stdout.split()
    host.run("kill", "-KILL", *logins, check=False)


def lives(host: TestHost, pid: int) -> bool:
    return host.exists(f"/proc/{pid}") and ") Z " not in host.read(f"/proc/{pid}/stat")


def invoke(inventory: str, *words: str) -> Result:
    return CliRunner().invoke(command.kill, ["kill-1", *words, "--inventory", inventory])


def only_run() -> run_history.RunRecord:
    [name] = run_history.names()
    return run_history.load(name)


def test_the_command_ends_the_users_own_work_on_a_gpu_and_nothing_else(node: TestHost, inventory: str) -> None:
    mine, beside = of_admin(node, "2001"), of_admin(node, "2002")
    on_gpus(node, mine, beside)
    shown = invoke(inventory, "0", "--check")
    assert (shown.exit_code, lives(node, mine)) == (0, True), shown.output
    assert f"pid {mine}" in shown.output
    assert run_history.names() == []
    unasked = invoke(inventory, "0")
    assert "--yes" in getattr(unasked.exception, "hint", "")
    done = invoke(inventory, "0", "--yes")
    assert done.exit_code == 0, done.output
    assert (lives(node, mine), lives(node, beside)) == (False, True)
    run = only_run()
    entry = run.hosts["kill-1"]
    assert (run.exit_code, entry["status"], entry["act"]) == (0, "ended", "kill")
    assert entry["shown"][0]["processes"][0]["pid"] == mine
    assert entry["outcomes"][0]["details"]["processes"][0]["signals"] == ["TERM"]
    wait_until(lambda: run.name in node.run("journalctl", "-t", "gpuctl", check=False).stdout, 20, "no line in the log")


def test_work_that_is_nobodys_own_needs_force_and_a_reason(node: TestHost, inventory: str) -> None:
    pid = service(node, "2003")
    on_gpus(node, pid)
    refused = invoke(inventory, "0", "--yes")
    assert "is not yours" in str(refused.exception)
    assert "--reason" in str(invoke(inventory, "0", "--yes", "--force").exception)
    assert (lives(node, pid), run_history.names()) == (True, [])
    done = invoke(inventory, "0", "--yes", "--force", "--reason", "it blocks the release")
    assert (done.exit_code, lives(node, pid)) == (0, False), done.output
    assert only_run().hosts["kill-1"]["reason"] == "it blocks the release"


def test_a_pid_that_is_used_again_after_it_was_shown_is_not_hit(node: TestHost) -> None:
    pid, beside = service(node, "2004"), service(node, "2005")
    on_gpus(node, pid)
    kill = read(node, "0")
    node.run("kill", "-KILL", str(pid))
    wait_until(lambda: not node.exists(f"/proc/{pid}"), 10, "it lives")
    again = f"echo {pid - 1} > /proc/sys/kernel/ns_last_pid; /usr/bin/sleep 2006 > /dev/null 2>&1 & echo $!"
    new = 0
    for _ in range(20):  # others start programs, too
        new = int(node.run("sh", "-c", again).stdout)
        if new == pid:
            break
        node.run("kill", str(new))
    assert new == pid, "the pid could not be used again"
    outcomes, name = nodes_kill.carry_out(kill, ["nodes", "kill"], FORCE, 1)
    assert [one.state for one in outcomes] == ["changed"]
    assert "the pid was used again" in outcomes[0].reason
    assert (lives(node, pid), lives(node, beside)) == (True, True)
    record = run_history.load(name)
    assert (record.exit_code, record.hosts["kill-1"]["status"]) == (3, "changed")


def test_a_service_of_the_gpus_is_refused_by_the_node_itself(node: TestHost) -> None:
    node.run("cp", "/usr/bin/sleep", "/usr/local/bin/nv-hostengine")
    pid = service(node, "2007", "/usr/local/bin/nv-hostengine", "2007")
    on_gpus(node, pid)  # nvidia-smi calls it python
    outcomes, _ = nodes_kill.carry_out(read(node, "0"), ["nodes", "kill"], FORCE, 1)
    assert [(one.state, lives(node, pid)) for one in outcomes] == [("refused", True)]


def test_a_process_that_moved_to_another_owner_is_not_hit(node: TestHost) -> None:
    pid = service(node, "2008")
    on_gpus(node, pid)
    kill = read(node, "0")
    folder = "/sys/fs/cgroup/system.slice/other.service"
    node.run("sh", "-c", f"mkdir -p {folder} && echo {pid} > {folder}/cgroup.procs")
    [outcome], _ = nodes_kill.carry_out(kill, ["nodes", "kill"], FORCE, 1)
    assert (outcome.state, lives(node, pid)) == ("changed", True)


def test_a_lost_connection_leaves_nobody_else_hit_and_the_end_is_known(node: TestHost) -> None:
    pid, beside = service(node, "2009", "/usr/bin/python3", "-c", DEAF), service(node, "2010")
    on_gpus(node, pid)
    kill = read(node, "0")
    done: list[Any] = []
    act = threading.Thread(target=lambda: done.append(nodes_kill.carry_out(kill, ["nodes", "kill"], FORCE, 6)))
    act.start()
    wait_until(lambda: node.exists("/run/got-term"), 30, "no TERM")  # the act waits for KILL now
    lose_connections(node)
    act.join(60)
    assert not act.is_alive()
    [(outcomes, name)] = done
    assert outcomes[0].state == "ended", outcomes
    assert "connection was lost" in outcomes[0].reason
    assert (lives(node, pid), lives(node, beside)) == (False, True)
    assert run_history.load(name).hosts["kill-1"]["outcomes"][0]["details"]["lost"]


def test_files_of_a_session_are_gone_after_its_connection_is_lost(node: TestHost) -> None:
    """The way in which nvitop is on a node; its wheels themselves are not needed for that."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("nvitop.py", "")
    data = buffer.getvalue()
    machine = node.run("uname", "-m").stdout.strip()
    files = [(Wheel("x.whl", "x==1", hashlib.sha256(data).hexdigest(), machine), data)]
    program = SessionProgram(ssh.command(login_of(target(node)), stays=True), feed(files))
    try:
        folder = json.loads(program.first_line(30))["folder"]
        assert node.run("stat", "-c", "%a %U", folder).stdout.split() == ["700", "root"]
        assert node.exists(f"{folder}/nvitop.py")
        lose_connections(node)
        wait_until(lambda: not node.exists(folder), 20, "the files are left")
    finally:
        program.close()


def test_a_process_that_waits_in_the_kernel_is_never_called_ended(node: TestHost) -> None:
    program = STUCK_AT_TERM.format(path=HANGS)
    shown, later = (service(node, mark, "/usr/bin/python3", "-c", program) for mark in ("2011", "2012"))
    beside = service(node, "2013")
    node.tree.hang(HANGS)
    try:
        on_gpus(node, later)
        outcomes, name = nodes_kill.carry_out(read(node, "0"), ["nodes", "kill"], FORCE, 2)
        assert [one.state for one in outcomes] == ["left"], outcomes
        assert "only a reset of the GPU or a reboot helps" in outcomes[0].reason
        assert run_history.load(name).hosts["kill-1"]["status"] == "left"

        node.run("kill", "-TERM", str(shown))
        wait_until(lambda: ") D " in node.read(f"/proc/{shown}/stat"), 20, "it does not wait in the kernel")
        on_gpus(node, shown)
        refusals = read(node, "0").plan.refusals
        assert any("waits in the kernel (state D) and ignores signals" in one for one in refusals), refusals
        assert all(lives(node, pid) for pid in (shown, later, beside))
    finally:
        node.tree.release()
