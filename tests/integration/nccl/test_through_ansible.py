"""The playbook nccl.yml: driven by `gpuctl nccl run --via ansible`, and by anybody's ansible-playbook."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.nccl.cluster import USER, Cluster
from tests.integration.nccl.test_command import SHORT, inventory, wait_until
from tests.rig.command import Gpuctl, reach

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")


def test_a_round_of_pairs_through_ansible(gpuctl: Gpuctl, pair: Cluster) -> None:
    said = gpuctl("nccl", "run", "-i", inventory(gpuctl, pair), *SHORT, "--via", "ansible", "-k", "pairs", "-o", "json")
    (launch,) = said.json["launches"]
    assert launch["run"]["outcome"] == "complete", said.out + said.err
    assert 350 < launch["run"]["max_busbw_gbs"] < 450
    assert (launch["lost"], pair.left()) == ([], {})


def test_what_a_test_is_given_stands_in_no_log_of_a_node(gpuctl: Gpuctl, pair: Cluster) -> None:
    words = ("--via", "ansible", "--env", "MY_TOKEN=for-nobodys-eyes", "-o", "json")
    said = gpuctl("nccl", "run", "-i", inventory(gpuctl, pair), *SHORT, *words)
    assert said.json["launches"][0]["run"]["outcome"] == "complete"
    for host in pair.hosts:
        log = host.run("journalctl", "--no-pager", "-o", "cat").stdout
        assert "sshd" in log or "session" in log
        assert "for-nobodys-eyes" not in log


def test_a_hang_is_looked_at_and_ended_through_ansible(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("hang h2 67108864")
    words = (*SHORT, "--timeout", 10, "--via", "ansible", "-o", "json")
    said = gpuctl("nccl", "run", "-i", inventory(gpuctl, pair), *words)
    assert said.code == 1
    (launch,) = said.json["launches"]
    assert (launch["run"]["outcome"], launch["waiting"]) == ("hung", {"h1": "waiting", "h2": "gone"})
    assert "after 32M: on h2 ranks 2, 3 are doing nothing; h1 waits for it" in launch["run"]["cause"]
    assert (launch["lost"], pair.left()) == ([], {})


def test_ctrl_c_ends_what_ansible_began(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("pace_ms 2000")
    running = gpuctl.start("nccl", "run", "-i", inventory(gpuctl, pair), *SHORT, "--via", "ansible")
    wait_until(lambda: all("all_reduce_perf" in pair.processes(host) for host in pair.hosts))
    running.send_signal(signal.SIGINT)
    said = gpuctl.said(running)
    assert said.code == 130
    assert pair.left() == {}


def test_anybody_runs_the_playbook_without_gpuctl(gpuctl: Gpuctl, pair: Cluster) -> None:
    hosts = gpuctl.inventory({host.name: reach(host, ansible_user=USER) for host in pair.hosts})
    runs = '{"nccl_runs": {"h1": {"hosts": ["h1", "h2"], "gpus": 2, "arguments": ["-b", "1G", "-e", "1G", "-g", "1"]}}}'
    argv = [str(PLAYBOOK), "gpuctl.fleet.nccl", "-i", str(hosts), "-e", runs, "-v"]
    done = subprocess.run(argv, env=gpuctl.environment(), cwd=gpuctl.home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Collective test concluded: all_reduce_perf" in done.stdout
    pair.fabric("wrong h1 1")
    done = subprocess.run(argv, env=gpuctl.environment(), cwd=gpuctl.home, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "it failed; its output shows why" in done.stdout
    assert pair.left() == {}


def play(gpuctl: Gpuctl, hosts: Path, runs: str = "{}") -> subprocess.Popen[str]:
    argv = [str(PLAYBOOK), "gpuctl.fleet.nccl", "-i", str(hosts), "-e", f'{{"nccl_runs": {runs}}}', "-v"]
    return subprocess.Popen(
        argv, env=gpuctl.environment(), cwd=gpuctl.home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_two_who_run_the_playbook_do_not_end_each_other(gpuctl: Gpuctl, pair: Cluster) -> None:
    pair.fabric("pace_ms 6000")
    hosts = inventory(gpuctl, pair)
    runs = '{"h1": {"hosts": ["h1", "h2"], "gpus": 2, "arguments": ["-b", "64M", "-e", "1G", "-f", "2"]}}'
    first = play(gpuctl, hosts, runs)
    wait_until(lambda: all("all_reduce_perf" in pair.processes(host) for host in pair.hosts))
    second = play(gpuctl, hosts)
    said = second.communicate(timeout=60)[0]
    assert second.returncode == 0, said
    assert first.poll() is None, "the second one is to come and go while the first one runs"
    said = first.communicate(timeout=120)[0]
    assert first.returncode == 0, said
    assert "Collective test concluded: all_reduce_perf" in said
    assert pair.left() == {}


def test_the_playbook_alone_tests_a_single_host_with_one_process(gpuctl: Gpuctl, pair: Cluster) -> None:
    hosts = gpuctl.inventory({"h1": reach(pair.hosts[0], ansible_user=USER)})
    runs = '{"h1": {"hosts": ["h1"], "gpus": 4, "arguments": ["-b", "1G", "-e", "1G"]}}'
    running = play(gpuctl, hosts, runs)
    said = running.communicate(timeout=60)[0]
    assert running.returncode == 0, said
    assert len(set(re.findall(r"#  Rank +\d+ Group +\d+ Pid +(\d+) ", said))) == 1
    assert len(set(re.findall(r"#  Rank +(\d+) Group", said))) == 4
