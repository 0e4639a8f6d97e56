"""The kind of machine: facts by which profiles choose overlays."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from ..host import Host
from ..topology import AMAZON, Device, devices

if TYPE_CHECKING:
    from . import answer_types

UNKNOWN = "unknown"
MELLANOX = "0x15b3"


class Machine(NamedTuple):
    """Facts for conditions of overlays; "unknown" if a file could not be read, which matches no overlay."""

    machine: str  # metal, virtual, container
    distribution: str  # debian, ubuntu, rhel, rocky, amzn …
    family: str  # debian, rhel
    version: str
    arch: str
    vendor: str  # cloud or server vendor, from DMI
    gpus: tuple[str, ...]  # model names, or PCI device ids if no driver is loaded
    nics: tuple[str, ...]  # efa, infiniband, roce, ethernet
    memory: str = UNKNOWN  # of which the kernel knows, in whole GiB: "503GiB" where 512 GiB are installed

    def as_dict(self) -> answer_types.Machine:
        return {
            "machine": self.machine,
            "distribution": self.distribution,
            "family": self.family,
            "version": self.version,
            "arch": self.arch,
            "vendor": self.vendor,
            "gpus": list(self.gpus),
            "nics": list(self.nics),
            "memory": self.memory,
        }


def read(host: Host) -> Machine:
    """Read the facts from files; no program is run."""
    release = _os_release(host)
    try:
        pci: list[Device] | None = devices(host)
    except OSError:
        pci = None
    return Machine(
        machine=_machine(host),
        distribution=release.get("ID", UNKNOWN),
        family=_family(release),
        version=release.get("VERSION_ID", UNKNOWN),
        arch=os.uname().machine,
        vendor=_value(host, "/sys/class/dmi/id/sys_vendor") or UNKNOWN,
        gpus=_gpus(host, pci),
        nics=_nics(host, pci),
        memory=_memory(host),
    )


def _text(host: Host, path: str) -> str | None:
    """The content of a file; None if it is missing or cannot be read."""
    try:
        return host.read_or_none(path)
    except OSError:
        return None


def _value(host: Host, path: str) -> str | None:
    try:
        return host.value(path)
    except OSError:
        return None


def _os_release(host: Host) -> dict[str, str]:
    text = _text(host, "/etc/os-release") or _text(host, "/usr/lib/os-release") or ""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _family(release: dict[str, str]) -> str:
    names = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    if names & {"debian", "ubuntu"}:
        return "debian"
    return "rhel" if names & {"rhel", "fedora", "centos", "amzn"} else UNKNOWN


def _machine(host: Host) -> str:
    if host.exists("/run/systemd/container") or host.exists("/.dockerenv") or host.exists("/run/.containerenv"):
        return "container"
    cpuinfo = _text(host, "/proc/cpuinfo")
    if not cpuinfo:
        return UNKNOWN
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    if flags:
        return "virtual" if "hypervisor" in flags.group(1).split() else "metal"
    # Arm has no such flag; in DMI, clouds name themselves, and a bare-metal machine its vendor.
    product = (_value(host, "/sys/class/dmi/id/product_name") or "").lower()
    if not product:
        return UNKNOWN
    return "virtual" if re.search(r"virtual|kvm|qemu|\.(?!metal)\w*xlarge", product) else "metal"


def _memory(host: Host) -> str:
    total = re.search(r"^MemTotal:\s*(\d+) kB$", _text(host, "/proc/meminfo") or "", re.MULTILINE)
    return f"{int(total[1]) >> 20}GiB" if total else UNKNOWN


def _gpus(host: Host, pci: list[Device] | None) -> tuple[str, ...]:
    models = []
    for path in host.glob("/proc/driver/nvidia/gpus/*/information"):
        model = re.search(r"^Model:\s*(.+?)\s*$", _text(host, path) or "", re.MULTILINE)
        models.append(model.group(1) if model else UNKNOWN)
    if not models and pci is None:
        return (UNKNOWN,)
    return tuple(models) or tuple(f"NVIDIA device {d.device}" for d in pci or () if d.kind == "gpu")


def _nics(host: Host, pci: list[Device] | None) -> tuple[str, ...]:
    kinds = {UNKNOWN} if pci is None else {"ethernet"} if any(d.kind == "nic" for d in pci) else set()
    if any(d.vendor == AMAZON and d.device.startswith("0xefa") for d in pci or ()):
        kinds.add("efa")
    for path in host.glob("/sys/class/infiniband/*/ports/*/link_layer"):
        layer = _value(host, path)
        if not path.startswith("/sys/class/infiniband/rdmap"):  # EFA devices report another link layer
            kinds.add("infiniband" if layer == "InfiniBand" else "roce" if layer == "Ethernet" else UNKNOWN)
    return tuple(sorted(kinds))
