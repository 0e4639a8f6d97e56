"""Kernel arguments on real hosts: written, booted, and taken back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl

ARGUMENTS = {"cmdline.iommu": "pt", "cmdline.init_on_alloc": 0, "cmdline.nosmt": "on"}


def by_grub(host: TestHost) -> None:
    host.boots_by_grub()


def by_grubby(host: TestHost) -> None:
    host.write("/etc/os-release", 'ID=rhel\nID_LIKE="fedora"\nVERSION_ID="9.4"\n')
    host.boots_by_grubby()


@pytest.mark.parametrize("boots", [by_grub, by_grubby])
def test_arguments_are_there_after_a_reboot_and_gone_after_a_rollback_and_another(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, boots: Callable[[TestHost], None]
) -> None:
    boots(host)
    before = host.read("/proc/cmdline")
    words = ("--inventory", rig.inventory(), "--via", "ssh", "--output", "json")
    profile = gpuctl.profile(ARGUMENTS)
    assert states(gpuctl("tune-nodes", *words, "--profile", profile).hosts[host.name]) == {"pending"}
    host.reboot()
    assert {"iommu=pt", "init_on_alloc=0", "nosmt"} <= set(host.read("/proc/cmdline").split())
    said = gpuctl("tune-nodes", *words, "--profile", profile)
    assert (said.code, states(said.hosts[host.name]), said.hosts[host.name]["record"]) == (0, {"ok"}, None)
    assert gpuctl("rollback", *words).code == 0
    host.reboot()
    assert host.read("/proc/cmdline").split() == before.split()


def states(answer: dict[str, object]) -> set[str]:
    knobs = answer["knobs"]
    assert isinstance(knobs, list)
    return {knob["state"] for knob in knobs}
