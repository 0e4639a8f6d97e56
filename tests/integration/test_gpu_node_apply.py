"""bootstrap gpu-node on real hosts: stand-in packages with true names, by real apt and dpkg; undo; interruptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl, Said
from tests.rig.standin_packages import be_ubuntu, driver, offer

OLD, NEW = "580.105.08", "580.178.04"
PACKAGES = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe", "standin-dkms")
# Everything but what dpkg and apt write about their own work, and what every boot changes.
STATE = """dpkg --get-selections; apt-mark showauto; apt-mark showhold
find /etc /lib/modules /usr/share/keyrings /opt -xdev \\( -type f -o -type l \\) ! -name 'ld.so.cache' \
    ! -name 'modules.*' ! -path '/opt/site/*' -exec sha256sum {} + | sort -k2
find /etc /lib/modules -xdev -printf '%p %m %U %G %y\\n' | grep -v modules.[a-z] | sort"""


@pytest.fixture(scope="module")
def host(rig: Rig) -> Iterator[TestHost]:
    """A host of Ubuntu's kind with eight T4, no driver, and headers for the running kernel."""
    [host] = rig.up(["gpu1"], machine="g4dn_metal")
    be_ubuntu(host)
    yield host
    rig.down([host.name])


def kernel(host: TestHost) -> str:
    return host.run("uname", "-r").stdout.strip()


def state(host: TestHost) -> str:
    return host.run("sh", "-c", STATE).stdout


def bring(gpuctl: Gpuctl, rig: Rig, tmp_path: Path, stack: str, *words: str) -> Said:
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack: {stack}\n")
    return gpuctl("bootstrap", "gpu-node", "-i", rig.inventory(), "--stack", path, "-o", "json", "--yes", *words)


def undo(gpuctl: Gpuctl, rig: Rig, *words: str) -> Said:
    return gpuctl("rollback", "-i", rig.inventory(), "--only", "gpu_stack", "-o", "json", "--via", "ssh", *words)


def knobs(done: Said, host: TestHost) -> dict[str, dict[str, Any]]:
    assert done.out, done.err
    return {knob["knob"]: knob for knob in done.hosts[host.name]["knobs"]}


def reasons(done: Said, host: TestHost) -> list[str]:
    return [f"{name} {knob['state']}: {knob['reason']}" for name, knob in knobs(done, host).items()]


def versions(host: TestHost) -> dict[str, str]:
    shown = host.run("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n", *PACKAGES, check=False)
    rows = [line.split() for line in shown.stdout.splitlines()]
    return {row[0]: f"{row[1]} {row[2]}" for row in rows if len(row) == 3}


def test_a_set_is_installed_held_upgraded_and_taken_back(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, tmp_path: Path
) -> None:
    offer(host, [*driver(OLD, kernel(host)), *driver(NEW, kernel(host))], tmp_path)
    before = state(host)
    checked = bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}", "--check")
    assert knobs(checked, host)["gpu_stack.driver"]["state"] == "differs"
    assert state(host) == before

    done = bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}")
    assert done.code == 0, reasons(done, host)
    assert knobs(done, host)["gpu_stack.driver"]["state"] == "ok"
    assert versions(host) == {
        **dict.fromkeys(PACKAGES[:3], f"{OLD}-1ubuntu1 hi"),
        "standin-dkms": "3.0.1 ii",
    }
    assert "standin-dkms" in host.run("apt-mark", "showauto").stdout
    assert host.run("modinfo", "-F", "version", "nvidia").stdout.strip() == OLD
    # A newer version is in the repository.
    upgrade = host.run("apt-get", "-s", "full-upgrade").stdout
    assert "Inst " not in upgrade
    assert not any(knob["changed"] for knob in knobs(bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}"), host).values())

    upgraded = bring(gpuctl, rig, tmp_path, f"{{driver: {NEW}}}")
    assert upgraded.code == 0, reasons(upgraded, host)
    assert set(versions(host).values()) == {f"{NEW}-1ubuntu1 hi", "3.0.1 ii"}
    downgraded = bring(gpuctl, rig, tmp_path, f"{{driver: {OLD}}}")
    assert downgraded.code == 0, reasons(downgraded, host)
    assert set(versions(host).values()) == {f"{OLD}-1ubuntu1 hi", "3.0.1 ii"}

    undone = undo(gpuctl, rig)
    assert undone.code == 0, reasons(undone, host)
    assert state(host) == before
    assert json.loads(undo(gpuctl, rig).out or "{}").get("hosts", [{}])[0].get("knobs", []) == []
