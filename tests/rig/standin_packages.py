"""Packages with the true names of NVIDIA's, which say that they are stand-ins, in a local repository of a test host."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig.host import TestHost
from tests.rig.hosts import Rig

CONTROL = """Package: {name}
Version: {version}
Architecture: all
Maintainer: gpuctl's tests <tests@gpuctl.example>
Description: stand-in of gpuctl's tests
"""
FOLDER = "/opt/site"  # neither its path nor its name has a part of NVIDIA's
SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


@dataclass(frozen=True)
class StandinPackage:
    """A package of apt. `more`: lines of its control file; `files`: path -> content; `postinst`: a shell script."""

    name: str
    version: str
    more: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    postinst: str = ""

    def build(self, folder: Path) -> Path:
        """Build it in a folder; return the path of the .deb file."""
        target = folder / f"{self.name}_{self.version}_all.deb"
        with tempfile.TemporaryDirectory() as work:
            root = Path(work)
            root.chmod(0o755)
            (root / "DEBIAN").mkdir()
            lines = CONTROL.format(name=self.name, version=self.version) + (f"{self.more}\n" if self.more else "")
            (root / "DEBIAN/control").write_text(lines)
            if self.postinst:
                (root / "DEBIAN/postinst").write_text(f"#!/bin/sh\nset -e\n{self.postinst}\n")
                (root / "DEBIAN/postinst").chmod(0o755)
            conffiles = [path for path in self.files if path.startswith("/etc/")]
            if conffiles:
                (root / "DEBIAN/conffiles").write_text("".join(f"{path}\n" for path in conffiles))
            for path, content in self.files.items():
                (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                (root / path[1:]).write_bytes(content)
            argv = ["dpkg-deb", "--root-owner-group", "-Znone", "-b", str(root), str(target)]
            subprocess.run(argv, check=True, capture_output=True)
        return target


def offer(host: TestHost, packages: Sequence[StandinPackage], scratch: Path) -> None:
    """Give the host a local repository with these packages, and no other."""
    folder, built = scratch / f"site-{host.name}", scratch / "built"
    for path in (folder, built):
        path.mkdir(exist_ok=True)
    host.run("mkdir", "-p", FOLDER)
    for package in packages:
        name = f"{package.name}_{package.version}_all.deb"
        if not (folder / name).exists():
            # Hosts that share the folder get the same file; a package that differs comes with another folder.
            file = built / name if (built / name).exists() else package.build(built)
            shutil.copy(file, folder)
            shutil.copy(file, host.root / FOLDER[1:])
    wanted = {f"{package.name}_{package.version}_all.deb" for package in packages}
    for path in folder.glob("*.deb"):
        if path.name not in wanted:
            path.unlink()
    argv = ["dpkg-scanpackages", "-m", "."]
    listing = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout
    host.write(f"{FOLDER}/Packages", listing)
    host.run("sh", "-c", "rm -f /etc/apt/sources.list.d/*")
    host.write("/etc/apt/sources.list.d/site.list", f"deb [trusted=yes] file:{FOLDER} ./\n")
    host.run("apt-get", "-qq", "update")


def kernel_module(version: str) -> bytes:
    """An object file with a version and a licence, as modinfo reads them; no kernel loads it."""
    texts = {"version": version, "license": "Dual MIT/GPL"}
    source = "".join(
        f'const char {name}[] __attribute__((section(".modinfo"))) = "{name}={text}";\n' for name, text in texts.items()
    )
    with tempfile.TemporaryDirectory() as work:
        path = Path(work, "nvidia.ko")
        subprocess.run(["gcc", "-x", "c", "-c", "-", "-o", str(path)], input=source.encode(), check=True)
        return path.read_bytes()


def driver(version: str, kernel: str, *, fabric: bool = False, postinst: str = "") -> list[StandinPackage]:
    """The set of Ubuntu's names for branch 580 in one version; its module is built already."""
    full = f"{version}-1ubuntu1"
    module = {f"/lib/modules/{kernel}/updates/dkms/nvidia.ko": kernel_module(version)}
    packages = [
        StandinPackage("libnvidia-compute-580", full, files={"/etc/nvidia/standin.conf": b"# stand-in\n"}),
        StandinPackage(
            "nvidia-dkms-580-open",
            full,
            f"Depends: standin-dkms, libnvidia-compute-580 (= {full})",
            module,
            postinst or f"depmod {kernel}",
        ),
        StandinPackage("nvidia-modprobe", full),
        StandinPackage("standin-dkms", "3.0.1"),
    ]
    if fabric:
        unit = {"/lib/systemd/system/nvidia-fabricmanager.service": SERVICE.encode()}
        packages += [
            StandinPackage("nvidia-fabricmanager-580", full, files=unit),
            StandinPackage("libnvidia-nscq-580", full),
        ]
    return packages


def toolkit(version: str) -> list[StandinPackage]:
    """NVIDIA's container toolkit by its packages; of its programs there is none."""
    names = ("nvidia-container-toolkit", "libnvidia-container-tools", "libnvidia-container1")
    refresh = "[Path]\nPathChanged=/lib/modules\n[Install]\nWantedBy=multi-user.target\n"
    once = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
    units = {
        "/lib/systemd/system/nvidia-cdi-refresh.path": refresh.encode(),
        "/lib/systemd/system/nvidia-cdi-refresh.service": once.encode(),
    }
    base = StandinPackage("nvidia-container-toolkit-base", f"{version}-1", files=units)
    return [base, *(StandinPackage(name, f"{version}-1") for name in names)]


def dcgm(version: str) -> list[StandinPackage]:
    """DCGM 4 for CUDA 13, and the generation before it, of another name."""
    unit = {"/lib/systemd/system/nvidia-dcgm.service": SERVICE.encode()}
    return [
        StandinPackage("datacenter-gpu-manager-4-core", f"1:{version}", files=unit),
        StandinPackage("datacenter-gpu-manager-4-cuda13", f"1:{version}"),
        StandinPackage("datacenter-gpu-manager", "1:3.3.9"),
    ]


def gdrcopy(version: str, kernel: str) -> list[StandinPackage]:
    """GDRCopy's packages; its module is built already, and has the first two numbers of the version."""
    built = kernel_module(".".join(version.split(".")[:2]))
    files = {f"/lib/modules/{kernel}/updates/dkms/gdrdrv.ko": built}
    return [
        StandinPackage("gdrdrv-dkms", version, files=files, postinst=f"depmod {kernel}"),
        StandinPackage("libgdrapi", version),
    ]


def with_adapter(host: TestHost) -> None:
    """An adapter of the driver mlx5_core, and loaded modules, as the kernel of a real host shows them."""
    host.tree.remove("/sys/class/infiniband")  # the EFA device, of which the machine has no driver recorded
    host.tree.put("/sys/class/infiniband/mlx5_0/device/uevent", "DRIVER=mlx5_core\n")
    for name in ("ib_core", "nvidia_peermem", "gdrdrv"):
        host.tree.put(f"/sys/module/{name}/refcnt", "0\n")
    host.tree.put("/sys/module/gdrdrv/version", "2.5\n")
    symbols = "/run/standin-kallsyms"  # those of the machine lack the interface for peer memory
    host.run("sh", "-c", f"echo '0 T ib_register_peer_memory_client [ib_core]' > {symbols}")
    host.run("mount", "--bind", symbols, "/proc/kallsyms")
    host.run("touch", "/dev/gdrdrv")


def be_ubuntu(host: TestHost) -> str:
    """Make a host of the rig one of Ubuntu without a driver; return its kernel's release."""
    for path in ("/sys/module/nvidia", "/proc/driver/nvidia"):
        host.tree.remove(path)
    return with_headers(host)


def with_headers(host: TestHost) -> str:
    """Make a host of the rig one of Ubuntu with headers for its kernel; return the kernel's release."""
    kernel = host.run("uname", "-r").stdout.strip()
    host.write(f"/lib/modules/{kernel}/build/Makefile", "# stand-in\n")
    host.write(f"/lib/modules/{kernel}/modules.order", "")
    host.write("/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
    return kernel


def prepare(role: str, name: str) -> None:
    """Prepare a host of a role's Molecule scenario."""
    rig = Rig(Path(os.environ["GPUCTL_RIG_STATE"]), lasting=True)
    host = next(host for host in rig.hosts() if host.name == name)
    kernel, version = be_ubuntu(host), "580.178.04"
    with tempfile.TemporaryDirectory() as scratch:
        offer(
            host,
            [*driver(version, kernel, fabric=True), *toolkit("1.20.0"), *dcgm("4.6.0-1"), *gdrcopy("2.5.2-1", kernel)],
            Path(scratch),
        )
    installed = {
        "fabric_manager": ["libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe", "libnvidia-nscq-580"],
        "dcgm": ["nvidia-dkms-580-open", "datacenter-gpu-manager"],
        "rdma": ["nvidia-dkms-580-open"],
    }.get(role, [])
    if role == "fabric_manager":
        installed.append("nvidia-fabricmanager-580")
        for field_name, text in {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000"}.items():
            host.tree.put(f"/sys/bus/pci/devices/0000:aa:00.0/{field_name}", f"{text}\n")
    if role == "rdma":
        with_adapter(host)
    if installed:
        host.run("apt-get", "-qq", "install", *installed)


if __name__ == "__main__":
    prepare(*sys.argv[1:])
