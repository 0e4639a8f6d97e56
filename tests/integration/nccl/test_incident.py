"""An incident on real hosts, from the alert to the remedy: a node lost its fabric, and is named.

Stand-ins: nccl-tests with the network fault of the other tests here, nvidia-smi, journalctl, and modprobe, which notes
its calls.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.conftest import Hosts
from tests.integration.nccl.cluster import Cluster
from tests.integration.test_audit import furnish
from tests.rig import Rig
from tests.rig.command import Gpuctl, reach

MODPROBE = """#!/bin/sh
# stands in for modprobe
echo "$*" >> /var/log/standin-modprobe
"""
LOG = """2026-11-28 03:00:01 step 1200 loss 2.31
h3:812:901 [0] NCCL WARN NET/OFI Request completed with error. Completed length: 0
[rank4]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
[rank0]: Connection closed by remote peer
"""
NODES = 4


@pytest.fixture
def fleet(rig: Rig, hosts: Hosts, all_reduce_perf: Path) -> Cluster:
    """Nodes with GPUs and EFA devices, one of which uses sockets."""
    cluster = Cluster(rig, hosts(NODES, machine="p5"), all_reduce_perf)
    cluster.furnish()
    for host in cluster.hosts:
        furnish(host)
        host.write("/usr/local/sbin/modprobe", MODPROBE, mode=0o755)
        host.tree.put("/sys/module/efa/refcnt", "0\n")
        host.run("cp", "-rT", "/home/nosudo/.ssh", "/root/.ssh")
        host.run("chown", "-R", "root:root", "/root/.ssh")
    cluster.fabric("tcp h3")
    return cluster


def step_names(record: Path) -> list[str]:
    return [one["step"] for one in json.loads(record.read_text())["entries"]]


def test_from_the_alert_to_the_remedy_that_the_rules_refuse(gpuctl: Gpuctl, fleet: Cluster) -> None:
    """In a container nobody knows who uses the GPUs, so that the driver stays; the record has the refusal."""
    log, resumed = gpuctl.home / "job.log", gpuctl.home / "resumed"
    log.write_text(LOG)
    inventory = gpuctl.inventory({host.name: reach(host, ansible_user="root") for host in fleet.hosts})
    words = ("--gpus-per-node", 2, "-b", "64M", "-e", "128M", "--timeout", 60, "--as-root", "--network", "efa")
    consents = [word for act in ("drain", "repair", "undrain", "resume-job") for word in ("--consent", act)]
    said = gpuctl(
        *("incident", "start", "GPU utilization dropped to 30 %", "--log", log, "--inventory", inventory, *words),
        *(*consents, "--", "touch", resumed),
    )
    assert said.code == 1, said.out + said.err
    [record] = (gpuctl.home / ".local/state/gpuctl/incidents").glob("*.json")
    assert step_names(record) == [
        *("read log", "read nodes", "preflight", "NCCL test", "isolate", "audit", "drain", "repair"),
    ]
    entries = json.loads(record.read_text())["entries"]
    assert [one["answer"]["state"] for one in entries[6:]] == ["refused", "refused"]
    assert entries[7]["options"]["service"] == "efa"
    assert not (fleet["h3"].root / "var/log/standin-modprobe").exists()
    assert not resumed.exists()
    text = record.with_suffix(".md").read_text()
    assert "proven: the NCCL tests prove that node h3 is bad" in text
    assert "hidden by its pid namespace" in text
    assert record.with_suffix(".html").read_text().startswith("<!doctype html>")
    assert fleet.left() == {}
