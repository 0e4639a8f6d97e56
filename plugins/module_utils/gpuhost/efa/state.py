"""State of EFA's software on a host: the installer's record, compared with the package manager and the modules.

The record alone proves little. The installer writes it before its last steps, leaves an old one in place when it fails
in an upgrade, and names in it packages that it skipped because a newer version was there. A folder proves nothing.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..facts import rdma
from ..host import Host
from ..model import Unreadable

RECORD = rdma.INSTALLED
FI_INFO = rdma.FI_INFO[::-1]  # that of the installer first: another one may lack the provider
MODULE = "/sys/module/efa"
PCI = "/sys/bus/pci/devices"
HALF, NO_MODULE = "half-installed", "without-module"
_VERSION = re.compile(r"^# EFA installer version:\s*(\d+(?:\.\d+)+)\s*$", re.MULTILINE)
# Packages that only EFA's installer brings; those of rdma-core have the names of the distribution's.
_FROM_AWS = re.compile(r"efa(-dkms|-config|-profile|-nv-peermem.*)?|libfabric.*-aws.*|openmpi\d*-aws.*|libnccl-ofi.*")
_RPM = re.compile(r"(?P<name>.+)-(?P<version>[^-]+-[^-]+)\.[^.]+")
RDMA = re.compile(
    r"rdma-core.*|ibacm|ibverbs-.*|infiniband-diags|libib(mad|netdisc|umad|verbs).*|librdmacm.*|rdmacm-.*"
)
# DKMS packages: name -> module. The second needs NVIDIA's driver, and is built against it.
DRIVER, PEER_MEMORY = "efa", "efa_nv_peermem"
_MODULES = ((re.compile("efa(-dkms)?"), DRIVER), (re.compile("efa-nv-peermem.*"), PEER_MEMORY))


class State(NamedTuple):
    """EFA's software on a host.

    `version`: of the installer that ran last, "" if there is no record. `minimal`: without libfabric and Open MPI.
    `half`: why its packages are only there in part. `unbuilt`: why its modules do not fit the running kernel.
    `driver`: version of the efa module for the running kernel, "" without one. `aws`: packages that only the installer
    brings, name -> version.
    """

    version: str
    minimal: bool = False
    half: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()
    driver: str = ""
    aws: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str | None:
        """Text of the setting: "1.48.0 full", with a mark if it is not whole; None if nothing of it is there."""
        if not self.version:
            return HALF if self.half else None
        mark = f" {HALF}" if self.half else f" {NO_MODULE}" if self.unbuilt else ""
        return f"{self.whole}{mark}"

    @property
    def whole(self) -> str | None:
        """Text of this state once it is whole; None without a record."""
        return text_of(self.version, minimal=self.minimal) if self.version else None

    @property
    def peer_memory(self) -> bool:
        """True with a module that is built against NVIDIA's."""
        return any(name.startswith("efa-nv-peermem") for name, _ in self.aws)

    @property
    def wrong(self) -> tuple[str, ...]:
        return (*self.half, *self.unbuilt)


def text_of(version: str, *, minimal: bool) -> str:
    """Text of an installation that is whole."""
    return f"{version} {'minimal' if minimal else 'full'}"


def number(version: str) -> tuple[int, ...]:
    """A version of the installer, to be compared."""
    return tuple(int(part) for part in version.split("."))


def read(host: Host) -> State:
    """The state; `Unreadable` if the record or the packages cannot be understood."""
    record = host.read_or_none(RECORD)
    installed = packages(host)
    aws = tuple((name, version) for name, version in sorted(installed.items()) if from_aws(name, version))
    if record is None:
        names = ", ".join(name for name, _ in aws[:4])
        return State("", half=(f"{names} without a record of the installer",) if aws else (), aws=aws)
    match = _VERSION.search(record)
    if match is None:
        raise Unreadable(f"{RECORD} names no version")
    recorded = _recorded(record, rpm=not host.which("dpkg-query"))
    if not recorded:
        return State(match[1], half=(f"{RECORD} names no package",), aws=aws)
    minimal = not any(name.startswith("libfabric") for name in recorded)
    half = tuple(_differences(host, recorded, installed))
    unbuilt, driver = modules(host, recorded)
    return State(match[1], minimal, half, unbuilt, driver, aws)


def from_aws(name: str, version: str) -> bool:
    return bool(_FROM_AWS.fullmatch(name)) or "amzn" in version


def packages(host: Host) -> dict[str, str]:
    """Installed packages: name -> version without its epoch."""
    if host.which("dpkg-query"):
        argv = ("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${db:Status-Status}\n")
    else:
        argv = ("rpm", "-qa", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\tinstalled\n")
    result = host.run(*argv)
    if not result.ok:
        raise Unreadable(f"{argv[0]}: {result.last_line}")
    rows = [line.split() for line in result.out.splitlines()]
    if not rows or not all(2 <= len(row) <= 3 for row in rows):  # one that is not installed may have no version
        raise Unreadable(f"the list of {argv[0]} is not understood")
    return {row[0]: re.sub(r"^\d+:", "", row[1]) for row in rows if len(row) == 3 and row[2] == "installed"}


def _recorded(record: str, *, rpm: bool) -> dict[str, str]:
    """Packages of the record: name -> version, from names of files without their ending."""
    words = [word for line in record.splitlines() if not line.startswith("#") for word in line.split()]
    if rpm:
        matches = [match for word in words if (match := _RPM.fullmatch(word))]
        return {match["name"]: match["version"] for match in matches}
    rows = [word.split("_") for word in words]
    return {row[0]: row[1] for row in rows if len(row) >= 2}


def _differences(host: Host, recorded: dict[str, str], installed: dict[str, str]) -> list[str]:
    """Packages that are not as recorded. A newer one of the distribution is fine: the installer leaves it alone."""
    found = []
    for name, version in recorded.items():
        now = installed.get(name)
        if now is None:
            found.append(f"{name} {version} of its record is not installed")
        elif now != version and (from_aws(name, version) or not _newer(host, now, version)):
            found.append(f"{name} is {now}, its record has {version}")
    return found


def _newer(host: Host, one: str, other: str) -> bool:
    """Compare two versions; rpm has no program for that on every host, so there any other version counts as newer."""
    return not host.which("dpkg") or host.run("dpkg", "--compare-versions", one, "gt", other).ok


def modules(host: Host, recorded: dict[str, str]) -> tuple[tuple[str, ...], str]:
    """(why the modules of recorded packages do not fit the running kernel, version of the efa module)."""
    kernel = host.value("/proc/sys/kernel/osrelease")
    if kernel is None:
        raise Unreadable("the running kernel is unknown")
    wanted = {
        module: version for name, version in recorded.items() for pattern, module in _MODULES if pattern.fullmatch(name)
    }
    found = {name: module_info(host, kernel, name) for name in (DRIVER, "ib_core", "ib_uverbs")}
    wrong = []
    if DRIVER in wanted:
        wrong += _unfit(DRIVER, found[DRIVER], wanted[DRIVER], kernel)
    elif not found[DRIVER]:
        wrong.append(f"there is no module efa for kernel {kernel}")
    wrong += _pair(found["ib_core"], found["ib_uverbs"], kernel)
    if PEER_MEMORY in wanted:
        wrong += _peer_memory(host, kernel, wanted[PEER_MEMORY])
    return tuple(wrong), found[DRIVER].get("version", "")


def _unfit(name: str, module: dict[str, str], package: str, kernel: str) -> list[str]:
    """Compare a module with its package: "2.17.2g" is that of 2.17.2-1.amzn1; the kernel's own has no version."""
    version = package.partition("-")[0]
    if not module:
        return [f"there is no module {name} for kernel {kernel}: DKMS has not built {version}"]
    built = re.sub("[a-z]+$", "", module.get("version", ""))
    if built != version:
        shown = built or "the kernel's own"
        return [f"the module {name} for kernel {kernel} is {shown}, its package is {version}"]
    magic = module.get("vermagic", "").partition(" ")[0]
    return [f"the module {name} was built for kernel {magic}, not {kernel}"] if magic not in {"", kernel} else []


def _pair(core: dict[str, str], verbs: dict[str, str], kernel: str) -> list[str]:
    """efa needs ib_core and ib_uverbs of one origin: the kernel's, or both of a package such as MLNX_OFED."""
    lacking = [name for name, module in (("ib_core", core), ("ib_uverbs", verbs)) if not module]
    if lacking:
        return [f"kernel {kernel} has no module {' and no '.join(lacking)}, which efa needs"]
    origins = [_origin(module["filename"]) for module in (core, verbs)]
    if origins[0] != origins[1]:
        return [f"ib_core is {origins[0]}, ib_uverbs {origins[1]}: modules of two origins do not fit together"]
    return []


def _origin(filename: str) -> str:
    return "the kernel's" if "/kernel/" in filename or "builtin" in filename else "of a package"


def _peer_memory(host: Host, kernel: str, package: str) -> list[str]:
    """efa_nv_peermem is built against NVIDIA's module; DKMS does not build it again when that one changes."""
    nvidia = next((info for name in ("nvidia", "nvidia-current") if (info := module_info(host, kernel, name))), {})
    if not nvidia:
        return []  # without the driver there is nothing to build against
    module = module_info(host, kernel, PEER_MEMORY)
    wrong = _unfit(PEER_MEMORY, module, package, kernel)
    ages = [_age(host, row.get("filename", "")) for row in (module, nvidia)]
    if not wrong and None not in ages and ages[0] < ages[1]:  # type: ignore[operator]
        return [f"the module {PEER_MEMORY} is older than NVIDIA's, against which it is built"]
    return wrong


def _age(host: Host, path: str) -> int | None:
    try:
        return int(os.stat(host.real(path)).st_mtime) if path.startswith("/") else None
    except OSError:
        return None


def module_info(host: Host, kernel: str, name: str) -> dict[str, str]:
    """Fields of a module for a kernel, the first value of each; empty if there is none."""
    result = host.run("modinfo", "-k", kernel, name, limit=10)
    if not result.ok:
        if "not found" in result.err or "No such file" in result.err:
            return {}
        line = result.last_line
        raise Unreadable(line if line.startswith("modinfo") else f"modinfo: {line}")
    fields: dict[str, str] = {}
    for line in result.out.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    fields.setdefault("filename", "")
    return fields


def devices(host: Host) -> int:
    """EFA devices of the PCI bus; `Unreadable` without the bus."""
    if not host.exists(PCI):
        raise Unreadable(f"{PCI} is missing")
    rows = ((host.value(f"{PCI}/{a}/vendor"), host.value(f"{PCI}/{a}/device")) for a in host.listdir(PCI))
    return sum(vendor == "0x1d0f" and (device or "").startswith("0xefa") for vendor, device in rows)


def offered_devices(host: Host) -> tuple[int | None, str]:
    """(devices that libfabric's provider efa offers, why that is not known)."""
    answers = (host.run(path, "-p", "efa", "-t", "FI_EP_RDM", limit=30) for path in FI_INFO)
    answer = next((answer for answer in answers if answer.code != 127), None)
    if answer is None:
        return None, "fi_info is not on this host"
    if not answer.ok:
        # Without a device, fi_info ends with "No data available", which is an answer.
        return (0, "") if "No data available" in answer.err + answer.out else (None, f"fi_info: {answer.last_line}")
    return rdma.domains(answer.out), ""
