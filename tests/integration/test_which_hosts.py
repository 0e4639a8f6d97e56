"""Which hosts a run is about, and that what they came to is told, whoever still listens."""

from __future__ import annotations

import subprocess

import yaml

from tests.integration.conftest import Hosts
from tests.rig import TestHost
from tests.rig.command import Gpuctl, reach

FEW = {"sysctl.vm.swappiness": 1}


def test_an_inventory_with_the_roles_group_has_that_group_tuned_and_no_other(gpuctl: Gpuctl, hosts: Hosts) -> None:
    trainer, login = hosts(2, machine="generic")
    path = gpuctl.home / "fleet.yml"
    groups = {
        "host_profile": {"children": {"training": {"hosts": {"trainer": reach(trainer)}}}},
        "logins": {"hosts": {"login": {**reach(login), "host_profile_reboot": True}}},
    }
    path.write_text(yaml.safe_dump({"all": {"children": groups}}))
    way = ("--inventory", path, "--profile", gpuctl.profile(FEW), "--output", "json")
    for via in ("ssh", "ansible"):
        assert list(gpuctl("drift", *way, "--via", via).hosts) == ["trainer"]
    assert {name: host["status"] for name, host in gpuctl("tune-nodes", *way).hosts.items()} == {"trainer": "changed"}
    assert login.read("/proc/sys/vm/swappiness") == "60\n"
    named = gpuctl("tune-nodes", *way, "--limit", "login")
    assert {name: host["status"] for name, host in named.hosts.items()} == {"login": "changed"}
    assert set(gpuctl("rollback", "--inventory", path, "--output", "json").hosts) == {"trainer", "login"}


def test_a_host_that_only_ansible_reaches_is_not_tried_over_ssh(gpuctl: Gpuctl, host: TestHost) -> None:
    inventory = gpuctl.inventory({host.name: {**reach(host), "ansible_host": "{{ address }}", "address": host.ip}})
    tune = ("tune-nodes", "--inventory", inventory, "--profile", gpuctl.profile(FEW), "--output", "json")
    forced = gpuctl(*tune, "--via", "ssh")
    assert (forced.code, forced.hosts[host.name]["status"]) == (3, "unreachable")
    assert forced.hosts[host.name]["error"]["wrong"] == "only Ansible can reach it: ansible_host is computed"
    assert gpuctl(*tune).hosts[host.name]["status"] == "changed"


def test_a_profile_name_that_is_computed_is_not_taken_for_none(gpuctl: Gpuctl, host: TestHost) -> None:
    inventory = gpuctl.inventory({host.name: {**reach(host), "host_profile_name": "{{ kind }}", "kind": "inference"}})
    said = gpuctl("tune-nodes", "--inventory", inventory)
    assert (said.code, "host_profile_name in the inventory is not a plain name" in said.err) == (2, True)
    assert host.tree.writes() == []


def test_a_run_whose_output_nobody_reads_goes_on_and_ends_with_its_code(gpuctl: Gpuctl, host: TestHost) -> None:
    inventory = gpuctl.inventory({host.name: reach(host), "nowhere": {"ansible_host": "gpu-1.invalid"}})
    tune = gpuctl.start(
        "tune-nodes", "--inventory", inventory, "--profile", gpuctl.profile(FEW), stderr=subprocess.PIPE
    )
    for stream in (tune.stdout, tune.stderr):
        assert stream is not None
        stream.close()
    assert tune.wait(timeout=60) == 3
    assert host.read("/proc/sys/vm/swappiness") == "1\n"


def test_no_host_is_touched_where_no_record_of_the_run_can_be_kept(gpuctl: Gpuctl, host: TestHost) -> None:
    tune = ("tune-nodes", "--inventory", gpuctl.inventory({host.name: reach(host)}), "--profile", gpuctl.profile(FEW))
    said = gpuctl(*tune, GPUCTL_STATE_DIR="/proc/nope")
    assert said.code == 3
    assert "cannot keep a record of this run" in said.err
    assert host.tree.writes() == []
