"""Archives with the layout of AWS's aws-efa-installer, whose packages and installer are stand-ins; signed by a test."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig.host import STANDINS, TestHost
from tests.rig.hosts import Rig
from tests.rig.standin_packages import StandinPackage, be_ubuntu, kernel_module

TOP = "aws-efa-installer"
DEBS = "DEBS/UBUNTU2404/x86_64"
# Installer -> driver, libfabric and rdma-core; the first two are those that AWS's notes name for 1.43 and 1.51.
VERSIONS = {"1.47.0": ("2.17.2", "2.1.0amzn5.0", "58.0-1"), "1.48.0": ("3.3.1", "2.7.0amzn2.0", "65.0-1")}
FI_INFO = """#!/bin/sh
# Stand-in for fi_info: one EFA device, as libfabric prints it, if the module is loaded.
[ -e /sys/module/efa ] || { echo 'fi_getinfo: -61 (No data available)' >&2; exit 61; }
printf 'provider: efa\\n    fabric: efa\\n    domain: rdmap170s0-rdm\\n    version: 127.0\\n    type: FI_EP_RDM\\n'
"""
DKMS = """#!/bin/sh
# Stand-in for dkms: "dkms install --force NAME/VERSION -k KERNEL" copies a module that is built already.
[ "$1" = install ] || exit 0
folder=/lib/modules/$5/updates/dkms
mkdir -p $folder && cp /usr/src/$(echo $3 | tr / -)/*.ko $folder/ && depmod $5
"""


class Signer:
    """A key of the test's own, in a folder of gpg."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(mode=0o700)
        self._gpg("--quick-generate-key", "stand-in of EFA's key", "ed25519", "sign", "never")
        rows = self._gpg("--list-keys", "--with-colons").splitlines()
        self.fingerprint = next(row.split(":")[9] for row in rows if row.startswith("fpr"))

    def _gpg(self, *words: str) -> str:
        argv = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--passphrase", "", *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def public(self) -> str:
        return self._gpg("--armor", "--export", self.fingerprint)

    def sign(self, path: Path) -> None:
        self._gpg("--detach-sign", "--output", f"{path}.sig", str(path))


@contextmanager
def signer(home: Path) -> Iterator[Signer]:
    """A key whose agent ends with the block."""
    try:
        yield Signer(home)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)


def packages(version: str, kernel: str) -> list[StandinPackage]:
    """Packages of one installer, in the order in which it installs them."""
    driver, libfabric, rdma = VERSIONS[version]
    module = kernel_module(f"{driver}g")
    built = {
        f"/lib/modules/{kernel}/updates/dkms/efa.ko": module,
        f"/usr/src/efa-{driver}/efa.ko": module,
        "/usr/sbin/standin-dkms": DKMS.encode(),
    }
    postinst = f"depmod {kernel}; install -m 755 /usr/sbin/standin-dkms /usr/sbin/dkms"
    return [
        StandinPackage("efa", f"{driver}-1.amzn1", files=built, postinst=postinst),
        StandinPackage("efa-config", "1.18"),
        StandinPackage("efa-profile", "1.7"),
        StandinPackage(
            "libfabric-aws-bin",
            libfabric,
            files={"/opt/amazon/efa/bin/fi_info": FI_INFO.encode()},
            postinst="chmod 755 /opt/amazon/efa/bin/fi_info",
        ),
        StandinPackage("libfabric1-aws", libfabric),
        StandinPackage("openmpi50-aws", "5.0.6"),
        StandinPackage("rdma-core", rdma),
    ]


def build(folder: Path, version: str, kernel: str, by: Signer) -> Path:
    """Make and sign the archive of one version; return its path."""
    root = folder / f"unpacked-{version}" / TOP
    (root / DEBS).mkdir(parents=True)
    paths = [package.build(root / DEBS).relative_to(root) for package in packages(version, kernel)]
    (root / "package_list.txt").write_text("".join(f"{path}\n" for path in paths))
    (root / "env.sh").write_text(f"EFA_INSTALLER_VERSION={version}\n")
    (root / "common.sh").write_text("# stand-in\n")
    script = root / "efa_installer.sh"
    script.write_bytes((STANDINS / "standin-efa-installer.sh").read_bytes())
    script.chmod(0o755)
    target = folder / f"{TOP}-{version}.tar.gz"
    with tarfile.open(target, "w:gz", compresslevel=1) as tar:
        tar.add(root, TOP)
    by.sign(target)
    return target


def give_modules(host: TestHost) -> None:
    """The kernel's own modules of InfiniBand."""
    kernel = host.run("uname", "-r").stdout.strip()
    for name in ("ib_core", "ib_uverbs"):
        path = host.root / f"lib/modules/{kernel}/kernel/drivers/infiniband/core/{name}.ko"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(kernel_module("0"))
    host.run("depmod", kernel)


def load(host: TestHost, version: str) -> None:
    """Let the module be loaded, as a boot does."""
    host.tree.put("/sys/module/efa/version", f"{VERSIONS[version][0]}g\n")


def mirror(host: TestHost, folder: Path, by: Signer) -> str:
    """Copy archives, signatures and key into a folder of the host; return its address."""
    target = host.root / "opt/mirror-efa"
    target.mkdir(exist_ok=True)
    for path in folder.glob(f"{TOP}-*"):
        subprocess.run(["cp", path, target], check=True)
    (target / f"{TOP}.key").write_text(by.public())
    return "file:/opt/mirror-efa"


def prepare(name: str, folder: Path) -> None:
    """Prepare a host of the role's Molecule scenario, and a folder of the controller with an archive and its key."""
    rig = Rig(Path(os.environ["GPUCTL_RIG_STATE"]), lasting=True)
    host = next(host for host in rig.hosts() if host.name == name)
    kernel = be_ubuntu(host)
    give_modules(host)
    load(host, "1.48.0")
    folder.mkdir()
    with signer(folder / "gnupg") as by:
        build(folder, "1.48.0", kernel, by)
        (folder / f"{TOP}.key").write_text(by.public())
        (folder / "fingerprint").write_text(by.fingerprint)


if __name__ == "__main__":
    prepare(sys.argv[1], Path(sys.argv[2]))
