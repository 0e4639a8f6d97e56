"""Batches: a fleet is changed part by part, and left alone where too many of a part have failed."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Hosts
from tests.rig import Rig
from tests.rig.command import Gpuctl

SWAPPINESS = "/proc/sys/vm/swappiness"


@pytest.mark.parametrize("way", ["ssh", "ansible"])
def test_after_a_bad_batch_the_others_are_not_started(gpuctl: Gpuctl, rig: Rig, hosts: Hosts, way: str) -> None:
    fleet = first, second, third, fourth = hosts(4, machine="generic")
    second.tree.fail(SWAPPINESS)
    words = ("-i", rig.inventory(), "-p", gpuctl.profile({"sysctl.vm.swappiness": 1}), "--via", way, "-o", "json")
    said = gpuctl("tune-nodes", *words, "--batch", "2", "--max-fail", "20%")
    assert {name: host["status"] for name, host in said.hosts.items()} == {
        first.name: "changed",
        second.name: "problems",
        third.name: "failed",
        fourth.name: "failed",
    }
    for host in (third, fourth):
        wrong = said.hosts[host.name]["error"]["wrong"]
        assert wrong == "not started: 1 of 2 hosts of an earlier batch failed, more than 20%"
    assert [host.read(SWAPPINESS) for host in fleet] == ["1\n", "60\n", "60\n", "60\n"]
    assert [host.exists("/var/lib/gpuctl") for host in fleet] == [True, True, False, False]
    assert said.code == 3

    tolerant = gpuctl("tune-nodes", *words, "--batch", "50%", "--max-fail", "50%")
    assert [host["status"] for host in tolerant.hosts.values()] == ["ok", "changed", "changed", "changed"]
