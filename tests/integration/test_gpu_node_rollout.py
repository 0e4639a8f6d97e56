"""A roll-out of bootstrap gpu-node over eight real hosts, with stand-in packages by real apt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """Eight hosts of Ubuntu's kind with eight T4, on which an older driver is installed and runs."""
    hosts = rig.up([f"gpu{number}" for number in range(1, 9)], machine="g4dn_metal")
    kernel = hosts[0].run("uname", "-r").stdout.strip()
    packages = [*driver(OLD, kernel), *driver(NEW, kernel, postinst=LOADS.format(kernel))]
    scratch = tmp_path_factory.mktemp("packages")
    names = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe")
    for host in hosts:
        with_headers(host)
        host.standin("nvidia-smi")
        offer(host, packages, scratch)
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


def begun(host: TestHost) -> bool:
    """True once the new package is being configured."""
    return (host.root / "root/begun").exists()


def load(host: TestHost, *, lost: int = 0) -> None:
    """Play the kernel, which loads the new module; `lost`: GPUs that do not come up with it."""
    host.tree.put(VERSION, MODULE.format(NEW))
    show(host, NEW, lost=lost)
    host.write("/root/loaded", "")


@contextmanager
def loading(hosts: Sequence[TestHost], lost: Mapping[str, int]) -> Iterator[None]:
    """Load the new module on each of these hosts while its package is configured."""
    ended = threading.Event()

    def watch() -> None:
        due = list(hosts)
        while due and not ended.wait(0.1):
            for host in [host for host in due if begun(host)]:
                load(host, lost=lost.get(host.name, 0))
                due.remove(host)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def words(rig: Rig, tmp_path: Path) -> tuple[str | Path, ...]:
    path = tmp_path / "stack.yml"
    path.write_text(f"gpu_stack: {{driver: {NEW}}}\n")
    options = ("--stack", path, "--batch", "2", "--max-fail", "0", "-o", "json", "--yes")
    return ("bootstrap", "gpu-node", "-i", rig.inventory(), *options)


def states(done: Said) -> list[str]:
    assert done.out, done.err
    return [row["status"] for row in done.hosts.values()]


def test_eight_hosts_in_batches_of_two_with_a_dead_controller_and_a_host_that_does_not_verify(
    gpuctl: Gpuctl, rig: Rig, fleet: list[TestHost], tmp_path: Path
) -> None:
    running = gpuctl.start(*words(rig, tmp_path))
    wait_until(lambda: all(begun(host) for host in fleet[:2]), 120, "the packages are not being configured")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    assert not any(begun(host) for host in fleet[2:])
    for host in fleet[:2]:
        load(host)

    ill = fleet[3]
    with loading(fleet[2:], {ill.name: 1}):
        stopped = gpuctl(*words(rig, tmp_path))
    assert stopped.code == 3, stopped.err
    row = stopped.hosts[ill.name]
    assert (row["status"], row["step"]) == ("failed", "verify"), row
    assert "nvidia-smi lists 7 of 8 GPUs" in row["error"]["wrong"]
    assert states(stopped).count("not started") == 4
    assert not any(begun(host) for host in fleet[4:])

    show(ill, NEW)
    with loading(fleet[4:], {}):
        resumed = gpuctl(*words(rig, tmp_path))
    assert (resumed.code, states(resumed)) == (0, ["up to date"] * 4 + ["done"] * 4), resumed.err
    assert "batch 2 of 2: verify gpu7, gpu8" in resumed.err
    for host in fleet:
        assert host.run("dpkg-query", "-Wf", "${Version}", "nvidia-dkms-580-open").stdout == f"{NEW}-1ubuntu1"
        assert host.run("dpkg", "--audit").stdout == ""
        assert "nvidia-dkms-580-open" in host.run("apt-mark", "showhold").stdout
