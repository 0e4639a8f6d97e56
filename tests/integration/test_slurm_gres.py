"""slurm_gres with a real slurmd and slurmctld on a host of 8 T4, two sockets of 24 cores; nvidia-smi is a stand-in."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost, slurm_programs
from tests.rig.command import Gpuctl
from tests.rig.host import wait_until
from tests.rig.needs import need

GRES, CGROUP = "/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf"
BEFORE = "# of the site\nName=gpu Type=t4 File=/dev/nvidia[0-7]\n"
LINES = "Name=gpu Type=t4 File=/dev/nvidia[0-3] Cores=0-23\nName=gpu Type=t4 File=/dev/nvidia[4-7] Cores=24-47\n"
SETTINGS = {"autodetect": "off", "constrain_devices": True}


@pytest.fixture
def node(hosts: Hosts) -> TestHost:
    need(slurm_programs.missing())
    (host,) = hosts(1, machine="g4dn_metal")
    host.standin("nvidia-smi")
    slurm_programs.install(host)
    wait_until(lambda: state(host) == "IDLE", 30, "the node does not become idle")
    return host


def field(node: TestHost, name: str) -> str:
    words = node.run("scontrol", "--oneliner", "show", "node", node.name).stdout.split()
    return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))


def state(node: TestHost) -> str:
    return field(node, "State")


def test_a_real_node_gets_its_lines_once_it_is_drained_and_empty(
    gpuctl: Gpuctl, rig: Rig, node: TestHost, tmp_path: Path
) -> None:
    inventory = tmp_path / "prod"
    inventory.mkdir()
    (inventory / "hosts").write_text(Path(rig.inventory()).read_text())
    (inventory / "group_vars").mkdir()
    (inventory / "group_vars/all.yml").write_text(json.dumps({"slurm_gres": SETTINGS}))
    profile = gpuctl.profile({"sysctl.vm.swappiness": 60})

    def tune(*more: str) -> dict[str, tuple[str, str]]:
        answer = gpuctl("tune-nodes", "--inventory", inventory, "--profile", profile, "--output", "json", *more)
        (host,) = answer.hosts.values()
        return {row["knob"]: (row["state"], row["reason"]) for row in host["knobs"] if row["knob"].startswith("slurm")}

    assert "is IDLE, not drained" in tune()["slurm.gres"][1]
    job = node.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 600").stdout.strip()
    wait_until(lambda: state(node) == "MIXED", 30, "the job does not start")
    drain = ("scontrol", "update", f"NodeName={node.name}", "State=DRAIN", "Reason=test")
    node.run(*drain)
    refused = tune("--allow-busy")
    assert {knob: row[0] for knob, row in refused.items()} == {"slurm.gres": "refused", "slurm.cgroup": "refused"}
    assert "job steps here" in refused["slurm.gres"][1]
    assert node.read(GRES) == BEFORE
    assert node.run("squeue", "--noheader", f"--jobs={job}", "--format=%T").stdout.strip() == "RUNNING"
    node.run("scancel", job)
    wait_until(lambda: state(node) == "IDLE+DRAIN", 30, "the node does not become empty")

    wait_until(lambda: "slurmstepd" not in node.run("ps", "-e").stdout, 30, "the job's step does not end")
    assert tune() == {"slurm.gres": ("ok", ""), "slurm.cgroup": ("ok", "")}
    assert node.read(GRES) == f"# of the site\n{LINES}"
    assert "CgroupPlugin=cgroup/v1\nConstrainDevices=yes\n" in node.read(CGROUP)
    assert state(node) == "IDLE+DRAIN"
    node.run("systemctl", "restart", "slurmctld")  # which takes cores and types when it starts
    wait_until(lambda: field(node, "Gres") == "gpu:t4:8(S:0-1)", 30, "slurmctld does not take the cores")
    began = field(node, "SlurmdStartTime")
    assert tune() == {"slurm.gres": ("ok", ""), "slurm.cgroup": ("ok", "")}
    assert field(node, "SlurmdStartTime") == began

    node.write(GRES, f"# of the site\n{LINES.splitlines()[0]}\n")  # as if somebody took four away
    time.sleep(2.5)
    assert tune("--check")["slurm.gres"][0] == "differs"
    node.write(GRES, f"# of the site\n{LINES}")
    node.run("systemctl", "restart", "slurmd")

    undone = gpuctl("rollback", "--inventory", inventory, "--only", "slurm.*", "--yes")
    assert undone.code == 0, undone.out
    assert node.read(GRES) == BEFORE
    assert node.read(CGROUP) == "CgroupPlugin=cgroup/v1\n"
    assert node.run("ls", "-A", "/etc/slurm").stdout.split() == ["cgroup.conf", "gres.conf", "slurm.conf"]
    assert node.run("systemctl", "is-active", "slurmd").stdout.strip() == "active"
