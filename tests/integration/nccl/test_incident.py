"""An incident on real hosts, from the alert to the resumed job: a node lost its fabric, and its driver is loaded again.

Stand-ins: nccl-tests with the network fault of the other tests here, nvidia-smi, journalctl, and modprobe, which makes
the fabric of its node whole again as loading the driver does.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.conftest import Hosts
from tests.integration.nccl.cluster import FABRIC, Cluster
from tests.integration.test_audit import furnish
from tests.rig import Rig
from tests.rig.command import Gpuctl, reach

MODPROBE = """#!/bin/sh
# stands in for modprobe: what is loaded again works again
echo "$*" >> /var/log/standin-modprobe
[ "$1" = -r ] || sed -i "/^tcp $(hostname)$/d" /srv/standin-fabric
"""
LOG = """2026-11-28 03:00:01 step 1200 loss 2.31
h3:812:901 [0] NCCL WARN NET/OFI Request completed with error. Completed length: 0
[rank4]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
[rank0]: Connection closed by remote peer
"""
NODES = 4


@pytest.fixture
def fleet(rig: Rig, hosts: Hosts, all_reduce_perf: Path, tmp_path: Path) -> Cluster:
    """Nodes with GPUs and EFA devices, whose network is one file that all share."""
    shared = tmp_path / "fabric"
    shared.mkdir()
    cluster = Cluster(rig, hosts(NODES, machine="p5", binds=[(str(shared), "/srv")]), all_reduce_perf)
    cluster.furnish()
    for host in cluster.hosts:
        (host.root / "etc/standin-fabric").unlink()
        (host.root / "etc/standin-fabric").symlink_to("/srv/standin-fabric")
        furnish(host)
        host.write("/usr/local/sbin/modprobe", MODPROBE, mode=0o755)
        host.tree.put("/sys/module/efa/refcnt", "0\n")
        host.run("cp", "-rT", "/home/nosudo/.ssh", "/root/.ssh")
        host.run("chown", "-R", "root:root", "/root/.ssh")
    (shared / "standin-fabric").write_text(f"{FABRIC}tcp h3\n")
    return cluster


def step_names(record: Path) -> list[str]:
    return [one["step"] for one in json.loads(record.read_text())["entries"]]


def test_from_the_alert_to_the_resumed_job(gpuctl: Gpuctl, fleet: Cluster) -> None:
    log, resumed = gpuctl.home / "job.log", gpuctl.home / "resumed"
    log.write_text(LOG)
    inventory = gpuctl.inventory({host.name: reach(host, ansible_user="root") for host in fleet.hosts})
    words = ("--gpus-per-node", 2, "-b", "256M", "-e", "1G", "--timeout", 60, "--as-root", "--network", "efa")
    said = gpuctl(
        *("incident", "start", "GPU utilization dropped to 30 %", "--log", log, "--inventory", inventory, *words),
        *("--consent", "drain", "--", "touch", resumed),
    )
    assert said.code == 3, said.out + said.err
    assert "needs a consent" in said.err
    assert not (fleet["h3"].root / "var/log/standin-modprobe").exists()
    [record] = (gpuctl.home / ".local/state/gpuctl/incidents").glob("*.json")
    said = gpuctl("incident", "resume", record.stem, "--consent", "repair", "--consent", "resume-job")
    assert said.code == 0, said.out + said.err
    assert (fleet["h3"].root / "var/log/standin-modprobe").read_text() == "-r efa\nefa\n"
    assert resumed.exists()
    assert step_names(record) == [
        *("read log", "read nodes", "preflight", "NCCL test", "isolate", "audit"),
        *("drain", "repair", "retest", "resume job"),
    ]
    text = record.with_suffix(".md").read_text()
    assert "proven: the NCCL tests prove that node h3 is bad" in text
    assert record.with_suffix(".html").read_text().startswith("<!doctype html>")
    assert fleet.left() == {}
