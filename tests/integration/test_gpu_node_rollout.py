"""A roll-out of bootstrap gpu-node over real hosts, with stand-in packages by real apt: one host does not verify."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import Rig, TestHost
from tests.rig.command import Gpuctl, Said
from tests.rig.host import wait_until
from tests.rig.standin_packages import driver, offer, with_headers

OLD, NEW = "580.105.08", "580.178.04"
VERSION = "/proc/driver/nvidia/version"
MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (standin@tests)\n"
LISTING = "/var/lib/standins/nvidia-smi/q.xml"
# The new module runs once the test has put it there, as if the package had loaded it.
LOADS = "depmod {}; touch /root/begun; while [ ! -e /root/loaded ]; do sleep 0.1; done"


@pytest.fixture
def fleet(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TestHost]]:
    """Two hosts of Ubuntu's kind with eight T4, on which an older driver is installed and runs."""
    hosts = rig.up(["gpu1", "gpu2"], machine="g4dn_metal")
    for host in hosts:
        kernel = with_headers(host)
        host.standin("nvidia-smi")
        loads = LOADS.format(kernel)
        offer(host, [*driver(OLD, kernel), *driver(NEW, kernel, postinst=loads)], tmp_path_factory.mktemp("packages"))
        names = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe")
        host.run("apt-get", "-qq", "install", *(f"{name}={OLD}-1ubuntu1" for name in names))
        host.tree.put(VERSION, MODULE.format(OLD))
        show(host, OLD)
    yield hosts
    rig.down([host.name for host in hosts])


def show(host: TestHost, version: str, *, lost: int = 0) -> None:
    """Let nvidia-smi list the GPUs of the bus, without the last ones."""
    addresses = [path.name for path in sorted(Path(host.root, "proc/driver/nvidia/gpus").glob("*"))]
    listed = addresses or host.run("ls", "/proc/driver/nvidia/gpus").stdout.split()
    rows = "".join(
        f'<gpu id="0000{address}"><product_name>Tesla T4</product_name><ecc_mode><current_ecc>Enabled</current_ecc>'
        "<pending_ecc>Enabled</pending_ecc></ecc_mode></gpu>"
        for address in listed[: len(listed) - lost]
    )
    host.write(LISTING, f"<nvidia_smi_log><driver_version>{version}</driver_version>{rows}</nvidia_smi_log>\n")


def load_when_installed(host: TestHost, *, lost: int = 0) -> threading.Thread:
    """Play the kernel that loads the new module while its package is configured."""

    def load() -> None:
        wait_until(lambda: host.exists("/root/begun"), 60, "the package is not being configured")
        host.tree.put(VERSION, MODULE.format(NEW))
        show(host, NEW, lost=lost)
        host.write("/root/loaded", "")

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread


def words(rig: Rig, tmp_path: Path) -> tuple[str | Path, ...]:
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack: {{driver: {NEW}}}\n")
    options = ("--stack", path, "--batch", "1", "--max-fail", "0", "-o", "json", "--yes")
    return ("bootstrap", "gpu-node", "-i", rig.inventory(), *options)


def roll(gpuctl: Gpuctl, rig: Rig, tmp_path: Path) -> Said:
    return gpuctl(*words(rig, tmp_path))


def test_a_host_that_does_not_verify_stops_the_roll_out_and_the_next_run_goes_on(
    gpuctl: Gpuctl, rig: Rig, fleet: list[TestHost], tmp_path: Path
) -> None:
    first, second = fleet
    loading = load_when_installed(first, lost=1)
    stopped = roll(gpuctl, rig, tmp_path)
    loading.join()
    assert stopped.code == 3, stopped.err
    rows = stopped.hosts
    assert (rows[first.name]["status"], rows[first.name]["step"]) == ("failed", "verify"), rows
    assert "nvidia-smi lists 7 of 8 GPUs" in rows[first.name]["error"]["wrong"]
    assert (rows[second.name]["status"], second.exists("/root/begun")) == ("not started", False)

    show(first, NEW)
    loading = load_when_installed(second)
    resumed = roll(gpuctl, rig, tmp_path)
    loading.join()
    assert {name: row["status"] for name, row in resumed.hosts.items()} == {
        first.name: "up to date",
        second.name: "done",
    }, resumed.err
    assert resumed.code == 0
    assert "batch 1 of 1: verify gpu2" in resumed.err


def test_killed_while_a_host_configures_its_driver_the_same_command_goes_on(
    gpuctl: Gpuctl, rig: Rig, fleet: list[TestHost], tmp_path: Path
) -> None:
    first, second = fleet
    running = gpuctl.start(*words(rig, tmp_path))
    wait_until(lambda: first.exists("/root/begun"), 90, "the package is not being configured")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    assert not second.exists("/root/begun")
    first.tree.put(VERSION, MODULE.format(NEW))
    show(first, NEW)
    first.write("/root/loaded", "")
    loading = load_when_installed(second)
    resumed = roll(gpuctl, rig, tmp_path)
    loading.join()
    assert resumed.code == 0, resumed.err
    assert {row["status"] for row in resumed.hosts.values()} <= {"done", "up to date"}
    assert resumed.hosts[second.name]["status"] == "done"
    for host in fleet:
        assert host.run("dpkg-query", "-Wf", "${Version}", "nvidia-dkms-580-open").stdout == f"{NEW}-1ubuntu1"
        assert host.run("dpkg", "--audit").stdout == ""
        assert "nvidia-dkms-580-open" in host.run("apt-mark", "showhold").stdout
