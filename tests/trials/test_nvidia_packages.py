"""bootstrap gpu-node with NVIDIA's real packages of Debian, whose modules the real DKMS builds: `make trials`.

Each build takes minutes of all processors. Stand-ins: uname, as the host plays one with Debian's kernel, and
nvidia-modprobe of the older version, which Debian does not have. Nothing loads the modules.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import gpuctl, rig, unchanged_machine
from tests.integration.test_gpu_node_apply import bring, knobs, reasons, undo
from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl
from tests.rig.host import wait_until
from tests.rig.needs import HOSTS, need

__all__ = ["gpuctl", "rig", "unchanged_machine"]
pytestmark = [pytest.mark.trial, pytest.mark.timeout(7200)]
SOURCES = "/etc/apt/sources.list.d/0000debian.sources"
COMPONENTS = "main contrib non-free non-free-firmware"
MODPROBE = "nvidia-modprobe"
SET = ("libcuda1", "nvidia-smi", "nvidia-kernel-dkms", MODPROBE)
# The names that a set of Debian's has without persistenced, which is of another version.
STACK = "{{driver: {}, repository: distribution, flavour: proprietary, without: [nvidia-persistenced]}}"
KILLED = "ps axo pid,args | awk '/apt-get|dpkg|dkms|make|cc1|python3|postinst/ && !/awk/ {print $1}' | xargs kill -9"
# DKMS keeps its keys, and initramfs has times in it.
STATE = """dpkg --get-selections; apt-mark showauto; apt-mark showhold
find /etc /lib/modules /usr/share/keyrings /usr/src /var/lib/dkms /boot /usr/lib/x86_64-linux-gnu -xdev \
    \\( -type f -o -type l \\) ! -name ld.so.cache ! -name 'initrd.img*' ! -name 'mok.*' ! -path '*/__pycache__/*' \
    -exec sha256sum {} + | sort -k2
find /etc /lib/modules /usr/src /usr/bin /boot -xdev -printf '%p %m %U %G %y %l\\n' | sort"""


def kernel_of_debian(host: TestHost) -> str:
    shown = host.run("apt-cache", "depends", "linux-headers-amd64").stdout
    match = re.search(r"Depends: linux-headers-(\S+)", shown)
    assert match, shown
    return match[1]


def be_debian(host: TestHost) -> str:
    """Give the host Debian's kernel, without a driver, and its non-free packages; return the kernel's release."""
    host.run("sed", "-i", f"s/^Components: .*/Components: {COMPONENTS}/", SOURCES)
    host.run("apt-get", "-qq", "update")
    kernel = kernel_of_debian(host)
    for path in ("/sys/module/nvidia", "/proc/driver/nvidia"):
        host.tree.remove(path)
    host.tree.put("/proc/sys/kernel/osrelease", f"{kernel}\n")
    host.standin("uname")
    install = "DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends"
    host.run("sh", "-c", f"{install} initramfs-tools linux-image-{kernel}")
    return kernel


def versions_of(host: TestHost, name: str) -> list[str]:
    """Upstream versions that the repositories have, the newest first."""
    shown = host.run("apt-cache", "madison", name).stdout
    return [line.split("|")[1].strip().partition("-")[0] for line in shown.splitlines()]


def offer_standin_modprobe(host: TestHost, version: str) -> None:
    """Add a repository with the real nvidia-modprobe under another version."""
    host.run("sh", "-c", f"mkdir -p /opt/standin /root/work && cd /root/work && apt-get -qq download {MODPROBE}")
    edit = rf"s/^Version: .*/Version: {version}-1/; s/^Description: .*/Description: stand-in with another version/"
    host.run("sh", "-c", f"cd /root/work && dpkg-deb -R *.deb x && sed -i '{edit}' x/DEBIAN/control")
    host.run("sh", "-c", f"dpkg-deb -b /root/work/x /opt/standin/{MODPROBE}_{version}.deb && rm -r /root/work")
    argv = ["dpkg-scanpackages", "-m", "."]
    folder = host.root / "opt/standin"
    (folder / "Packages").write_text(
        subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout
    )
    host.write("/etc/apt/sources.list.d/standin.list", "deb [trusted=yes] file:/opt/standin ./\n")
    host.run("apt-get", "-qq", "update")


@pytest.fixture(scope="module")
def host(rig: Rig) -> Iterator[TestHost]:
    [started] = rig.up(["debian1"], machine="g4dn_metal", nat=True)
    if not started.exists(SOURCES):
        need("the rig's root folder has no debian.sources", HOSTS)
    be_debian(started)
    offer_standin_modprobe(started, versions_of(started, "nvidia-kernel-dkms")[1])
    yield started
    rig.down([started.name])


def installed(host: TestHost) -> set[str]:
    shown = host.run("dpkg-query", "-W", "-f", "${Version} ${db:Status-Abbrev}\n", *SET, check=False).stdout
    return {f"{line.partition('-')[0]} {line.split()[-1]}" for line in shown.splitlines()}


def module(host: TestHost) -> str:
    kernel = host.run("uname", "-r").stdout.strip()
    return host.run("modinfo", "-k", kernel, "-F", "version", "nvidia-current").stdout.strip()


def test_a_set_is_built_through_a_kill_moves_down_as_a_whole_and_is_taken_back(
    gpuctl: Gpuctl, rig: Rig, host: TestHost, tmp_path: Path
) -> None:
    gpuctl.limit_s = 3600
    new, old = versions_of(host, "nvidia-kernel-dkms")
    before = host.run("sh", "-c", STATE).stdout

    path = tmp_path / "killed.yml"
    path.write_text(f"gpu_stack: {STACK.format(new)}\n")
    running = gpuctl.start("bootstrap", "gpu-node", "-i", rig.inventory(), "--stack", path, "--yes")
    objects = "var/lib/dkms/nvidia-current/*/build/nvidia/*.o"
    wait_until(lambda: any(host.root.glob(objects)), 1200, "DKMS builds nothing")
    host.run("sh", "-c", KILLED, check=False)
    assert gpuctl.said(running).code == 3
    assert "nvidia-kernel-dkms" in host.run("dpkg", "--audit").stdout

    done = bring(gpuctl, rig, tmp_path, STACK.format(new))
    assert done.code == 0, reasons(done, host)
    assert (installed(host), module(host)) == ({f"{new} hi"}, new)
    assert host.run("dpkg", "--audit").stdout == ""
    again = bring(gpuctl, rig, tmp_path, STACK.format(new))
    assert not any(knob["changed"] for knob in knobs(again, host).values())

    moved = bring(gpuctl, rig, tmp_path, STACK.format(old))
    assert moved.code == 0, reasons(moved, host)
    assert (installed(host), module(host)) == ({f"{old} hi"}, old)
    # The newer version is in a repository, and the pin keeps the set together.
    assert "Inst " not in host.run("apt-get", "-s", "full-upgrade").stdout

    undone = undo(gpuctl, rig)
    assert undone.code == 0, reasons(undone, host)
    assert host.run("sh", "-c", STATE).stdout == before
