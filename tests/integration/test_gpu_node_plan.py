"""gpu-node plan on real hosts of Debian, with Debian's real packages of NVIDIA's driver and with a local repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Hosts
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl
from tests.rig.needs import HOSTS, need

COMPONENTS = "main contrib non-free non-free-firmware"
CONTROL = """Package: {name}
Version: {version}
Architecture: all
Maintainer: gpuctl's tests <tests@gpuctl.example>
Description: stand-in of gpuctl's tests
{more}
"""
# Name, version and more lines of stand-in packages, which have true names and no content.
UBUNTU_SET = [
    ("libnvidia-compute-580", "580.178.04-1ubuntu1", ""),
    ("nvidia-dkms-580-open", "580.178.04-1ubuntu1", ""),
    ("nvidia-modprobe", "580.178.04-1ubuntu1", ""),
]
BEHIND = ("nvidia-persistenced", "580.105.08-1ubuntu1", "")
PULLS_IT = ("nvidia-dkms-580-open", "580.178.04-1ubuntu1", "Depends: nvidia-persistenced")
TRANSITIONAL = [
    ("nvidia-dkms-580-open", "580.178.04-1ubuntu1", "Depends: nvidia-fabricmanager-535"),
    ("nvidia-fabricmanager-535", "580.178.04-1ubuntu1", ""),
]
Deb = tuple[str, str, str]


# What logging in and systemd write while a plan runs.
OTHERS = "^(var/log/(journal|wtmp|lastlog|btmp|auth|syslog)|var/lib/(systemd|dbus)|(root|tmp|var/log|var/lib|dev/shm) )"
STATE = f"""cd / && find etc var usr root home opt srv boot tmp dev/shm -xdev -printf '%p %m %U %G %s %T@ %y\\n' |
grep -vE '{OTHERS}' | sort
find etc var/lib/dpkg var/lib/apt var/cache/apt var/log/apt -xdev -type f -exec sha256sum {{}} + | sort"""


def without_caches(host: TestHost) -> None:
    """Let apt find no cache of packages: as root it writes one whenever it is asked anything."""
    host.run("sh", "-c", "rm -f /var/cache/apt/*.bin")


def state(host: TestHost) -> str:
    """Paths, modes, owners, sizes and times of everything on the host's disk, and the content of what apt keeps."""
    return host.run("sh", "-c", STATE).stdout


def stack(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack: {text}\n")
    return path


def offer(host: TestHost, packages: Sequence[Deb], tmp_path: Path, key: str = "") -> None:
    """Give the host a local repository with these packages, and no other."""
    repository = tmp_path / f"repository-{host.name}"
    repository.mkdir(exist_ok=True)
    for name, version, more in packages:
        folder = tmp_path / "deb" / f"{name}-{version}"
        (folder / "DEBIAN").mkdir(parents=True, exist_ok=True)
        (folder / "DEBIAN/control").write_text(
            CONTROL.format(name=name, version=version, more=more).replace("\n\n", "\n")
        )
        target = repository / f"{name}_{version}_all.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", folder, target], check=True, capture_output=True)
        host.run("mkdir", "-p", "/opt/nvidia")
        subprocess.run(["cp", target, host.root / "opt/nvidia"], check=True)
    listing = subprocess.run(
        ["dpkg-scanpackages", "-m", "."], cwd=repository, check=True, capture_output=True, text=True
    ).stdout
    host.write("/opt/nvidia/Packages", listing)
    option = f"signed-by={key}" if key else "trusted=yes"
    host.run("sh", "-c", "rm -f /etc/apt/sources.list.d/*")
    host.write("/etc/apt/sources.list.d/nvidia.list", f"deb [{option}] file:/opt/nvidia ./\n")
    host.run("apt-get", "-qq", "update")


@pytest.fixture
def t4(hosts: Hosts) -> TestHost:
    """A host with eight T4 and no jobs, whose driver is not loaded, with headers for the running kernel."""
    host = hosts(1, machine="g4dn_metal")[0]
    release = host.run("uname", "-r").stdout.strip()
    host.write(f"/lib/modules/{release}/build/Makefile", "# stand-in\n")
    for path in ("/sys/module/nvidia", "/proc/driver/nvidia"):
        host.tree.remove(path)
    host.write("/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
    return host


def planned(gpuctl: Gpuctl, rig: Rig, path: Path, *words: str) -> tuple[int, dict[str, Any], list[dict[str, str]]]:
    done = gpuctl("gpu-node", "plan", "-i", rig.inventory(), "--stack", path, "-o", "json", *words)
    assert done.out, done.err
    document = json.loads(done.out)
    return done.code, document["hosts"], document["findings"]


def problems(findings: list[dict[str, str]], verdict: str = "FAIL") -> dict[str, str]:
    return {finding["check"]: finding["message"] for finding in findings if finding["verdict"] == verdict}


def test_debians_own_set_is_refused_with_its_versions_and_nothing_is_written(
    gpuctl: Gpuctl, rig: Rig, hosts: Hosts, tmp_path: Path
) -> None:
    host = hosts(1, machine="g4dn_metal", nat=True)[0]
    sources = "/etc/apt/sources.list.d/0000debian.sources"
    if not host.exists(sources):
        need("the rig's root folder has no debian.sources", HOSTS)
    host.run("sed", "-i", f"s/^Components: .*/Components: {COMPONENTS}/", sources)
    host.run("apt-get", "-qq", "update")
    offered = host.run("apt-cache", "madison", "nvidia-open-kernel-dkms", "nvidia-persistenced", "libcuda1").stdout
    if "non-free" not in offered:
        need("the mirror of Debian has no non-free component", HOSTS)
    newest: dict[str, str] = {}
    for name, version in (line.split("|")[:2] for line in offered.splitlines()):
        newest.setdefault(name.strip(), version.strip().partition("-")[0])
    without_caches(host)
    before = state(host)
    code, plans, findings = planned(gpuctl, rig, stack(tmp_path, "{driver: 535, repository: distribution}"))
    assert code == 1
    assert len(set(newest.values())) == 3
    message = problems(findings)["one version"]
    assert message.startswith("no version of branch 535 that all parts are offered in: ")
    assert all(version in message for version in newest.values())
    assert plans[host.name]["state"] == "refused"
    assert state(host) == before


def test_a_whole_set_is_resolved_on_the_host_and_nothing_is_written(
    gpuctl: Gpuctl, rig: Rig, t4: TestHost, tmp_path: Path
) -> None:
    offer(t4, UBUNTU_SET, tmp_path)
    without_caches(t4)
    before = state(t4)
    facts = tmp_path / "facts.json"
    _, plans, findings = planned(gpuctl, rig, stack(tmp_path, "{driver: 580}"), "--save", str(facts))
    plan = plans[t4.name]
    assert plan["driver"] == "580.178.04"
    assert plan["transaction"] == {"installs": {name: version for name, version, _ in UBUNTU_SET}, "removes": {}}
    assert problems(findings) == {
        "repository key": "signatures of file:/opt/nvidia are not checked (/etc/apt/sources.list.d/nvidia.list)"
    }
    assert problems(findings, "UNKNOWN") == {}
    assert state(t4) == before
    again = gpuctl("gpu-node", "plan", "--from", facts, "-o", "json")
    assert (again.json["hosts"], again.json["findings"][0]["check"]) == (plans, findings[0]["check"])


MIXED = {
    "a dependency one build behind": (
        [*UBUNTU_SET[::2], PULLS_IT, BEHIND],
        ("one version", "open module, modprobe 580.178.04; persistenced 580.105.08"),
    ),
    "a transitional package": (
        [*UBUNTU_SET[::2], *TRANSITIONAL],
        ("branch", "nvidia-fabricmanager-535 resolves to 580.178.04-1ubuntu1"),
    ),
    "a dependency that no repository has": (
        [*UBUNTU_SET[::2], PULLS_IT],
        ("transaction", "Depends: nvidia-persistenced but it is not installable"),
    ),
}


@pytest.mark.parametrize("case", MIXED)
def test_what_apt_would_pull_in_is_judged_before_it_is_installed(
    case: str, gpuctl: Gpuctl, rig: Rig, t4: TestHost, tmp_path: Path
) -> None:
    packages, (check, reason) = MIXED[case]
    offer(t4, packages, tmp_path)
    code, _, findings = planned(gpuctl, rig, stack(tmp_path, "{driver: 580.178.04}"))
    assert code == 1
    assert reason in problems(findings)[check]
    assert t4.run("dpkg-query", "-W", "nvidia-modprobe", check=False).returncode


def test_a_host_that_is_gone_is_reported_and_the_others_are_planned(
    gpuctl: Gpuctl, rig: Rig, hosts: Hosts, tmp_path: Path
) -> None:
    here, gone = hosts(2, machine="g4dn_metal")
    inventory = rig.inventory()
    gone.stop()
    done = gpuctl("gpu-node", "plan", "-i", inventory, "--stack", stack(tmp_path, "{driver: 580}"), "-o", "json")
    assert done.code == 3
    assert list(done.json["hosts"]) == [here.name]
    assert list(done.json["unasked"]) == [gone.name]
