"""RDMA adapters: ports in the kernel, and EFA's domains in libfabric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..host import Host
from ..topology import AMAZON, devices

if TYPE_CHECKING:
    from .answer_types import Efa, Gid, Port, RdmaFacts

VERBS = "/sys/class/infiniband"
FI_INFO = ("fi_info", "/opt/amazon/efa/bin/fi_info")
INSTALLED = "/opt/amazon/efa_installed_packages"
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def read(host: Host, request: Mapping[str, Any]) -> RdmaFacts:
    """{ports, efa}: ports of all verbs devices, and facts of EFA (None if the bus has no EFA device)."""
    unread: dict[str, str] = {}
    ports: list[Port] | None = None
    if host.exists("/sys/class"):  # without any adapter's driver its subfolder is missing: no ports
        ports = [_port(host, path, unread) for path in host.glob(f"{VERBS}/*/ports/*")]
    else:
        unread["ports"] = "/sys/class is missing"
    on_bus = [d for d in devices(host) if d.vendor == AMAZON and d.device.startswith("0xefa")]
    efa = _efa(host, len(on_bus), unread) if on_bus or any(p["efa"] for p in ports or ()) else None
    return {"ports": ports, "efa": efa, "unread": unread}


def _port(host: Host, path: str, unread: dict[str, str]) -> Port:
    """One port. `rate_gbps` in Gb/s; `state` such as "ACTIVE"; `gids` in use: {index, gid, type, net}."""
    device, number = path.split("/")[4], path.rpartition("/")[2]
    base = f"{VERBS}/{device}/device"

    def value(name: str, where: str = path) -> str | None:
        try:
            return host.value(f"{where}/{name}") or None
        except OSError as error:  # a port that is down refuses its rate on some drivers
            unread[f"{device}:{number} {name}"] = error.strerror or str(error)
            return None

    rate, vendor = re.match(r"[\d.]+", value("rate") or ""), value("vendor", base)
    return {
        "device": device,
        "port": int(number),
        # A device on no bus has no vendor; one whose vendor cannot be read is unknown.
        "efa": None if f"{device}:{number} vendor" in unread else vendor == AMAZON,
        "state": _word(value("state")),
        "physical": _word(value("phys_state")),
        "rate_gbps": float(rate.group()) if rate else None,
        "link": value("link_layer"),
        "net": _net(host, device, number),
        "firmware": value("fw_ver", f"{VERBS}/{device}"),
        "numa": value("numa_node", base),
        "gids": _gids(host, path),
    }


def _word(text: str | None) -> str | None:
    """ "4: ACTIVE" -> "ACTIVE"."""
    return text.partition(":")[2].strip() or text if text else None


def _net(host: Host, device: str, port: str) -> str | None:
    """Network interface of a port; if a function has several ports, by the port's number."""
    nets = host.listdir(f"{VERBS}/{device}/device/net")
    if len(nets) < 2:
        return nets[0] if nets else None
    by_port = {host.value(f"{VERBS}/{device}/device/net/{net}/dev_port"): net for net in nets}
    return by_port.get(str(int(port) - 1))


def _gids(host: Host, path: str) -> list[Gid]:
    """GIDs in use, with None for attributes that the kernel refuses to show."""

    def value(name: str) -> str | None:
        try:
            return host.value(f"{path}/{name}")
        except OSError:
            return None

    indices = sorted(int(name) for name in host.listdir(f"{path}/gids") if name.isdigit())
    gids = {index: value(f"gids/{index}") for index in indices}
    return [
        {
            "index": index,
            "gid": gid,
            "type": value(f"gid_attrs/types/{index}"),
            "net": value(f"gid_attrs/ndevs/{index}"),
        }
        for index, gid in gids.items()
        if gid and gid != NO_GID
    ]


def _efa(host: Host, on_bus: int, unread: dict[str, str]) -> Efa:
    """{on_bus, domains, libfabric, plugin, installer, driver, peer_memory}: counts and versions."""
    listing = next(
        (s for s in (host.run(p, "-p", "efa", "-t", "FI_EP_RDM", limit=30) for p in FI_INFO) if s.code != 127), None
    )
    version = next((s for s in (host.run(p, "--version", limit=10) for p in FI_INFO) if s.ok), None)
    if listing is None or not listing.ok:
        unread["efa domains"] = listing.last_line if listing else "fi_info: not on this host"
    packages = host.read_or_none(INSTALLED) or ""
    return {
        "on_bus": on_bus,
        "domains": domains(listing.out) if listing and listing.ok else None,
        "libfabric": _version(r"libfabric:\s*(\d[\w.]*)", version.out if version else ""),
        "plugin": _version(r"libnccl-ofi\S*?[-_ ]v?(\d+\.\d+\.\d+)", packages),
        "installer": _version(r"EFA installer version:\s*(\S+)", packages),
        "driver": host.value("/sys/module/efa/version"),
        "peer_memory": host.value("/sys/module/efa_nv_peermem/version"),
    }


def domains(text: str) -> int:
    """Number of devices in `fi_info -p efa -t FI_EP_RDM`; newer libfabric lists each twice (efa-direct and efa)."""
    return len(set(re.findall(r"^\s*domain:\s*(\S+)-rdm\s*$", text, re.MULTILINE)))


def _version(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match.group(1) if match else None
