"""NCCL_NET, NCCL_IB_HCA, NCCL_IB_GID_INDEX, NCCL_CROSS_NIC: ports and how they pair up."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_interface

from gpuctl.domain.gpudirect import version
from gpuctl.nccl.advise.model import Setting, guide
from gpuctl.nccl.topology.adapters import Facts, adapters, in_order, name

SELECTS_GID = (2, 21)  # from here on NCCL looks for the RoCE v2 address itself
IPV4_GID = "0000:0000:0000:0000:0000:ffff:"
LINK_LOCAL = "fe80:0000:0000:0000"


def net(facts: Facts) -> list[Setting]:
    """Pin the network, so that a fall-back to TCP fails instead of being slow; not if a plugin provides another.

    NCCL_NET names one network. NCCL's own is "IB"; that of nccl-rdma-sharp-plugins is "IBext", with a version
    number in newer releases.
    """
    ports = adapters(facts)
    if ports is None or not ports.kind:
        return []
    source = guide("NCCL_NET")
    if ports.kind == "efa":
        why = (
            "The plugin's name differs between its versions: `gpuctl nccl parse` shows from the log which one was used."
        )
        return [Setting("NCCL_NET", None, why, "aws/aws-ofi-nccl")]
    return [_own_net(facts.get("programs", {}).get("net_plugins"), source)]


USED = "`gpuctl nccl parse` shows from the log which network was used."


def _own_net(plugins: list[str] | None, source: str) -> Setting:
    name, pinned = "NCCL_NET", "NCCL_NET=IB takes NCCL's own network and leaves every plugin unused (IBext of HPC-X)"
    if plugins is None:
        why = f"{pinned}; it is not known if one is installed. {USED}"
        return Setting(name, None, why, source)
    if plugins:
        why = f"{pinned}, and one is installed: {', '.join(plugins)}. {USED}"
        return Setting(name, None, why, source)
    why = f"Without it a run that finds no adapter falls back to TCP and passes. {pinned}; none was found here."
    return Setting(name, "IB", f"{why} Leave it unset if the container of a job contains a plugin.", source)


def hca(facts: Facts) -> list[Setting]:
    """List the fabric's ports by their exact names."""
    fabric = adapters(facts)
    if fabric is None:
        return []
    source = guide("NCCL_IB_HCA")
    if fabric.kind == "efa":
        why = "NCCL does not use EFA itself: the plugin aws-ofi-nccl uses all EFA devices by itself."
        return [Setting("NCCL_IB_HCA", None, why, "aws/aws-ofi-nccl; libfabric fi_efa(7)")]
    if not fabric.kind:
        return [Setting("NCCL_IB_HCA", None, "The node has no active RDMA port to name.", source)]
    ports = Counter(port["device"] for port in facts["rdma"]["ports"])
    devices = [port["device"] if ports[port["device"]] == 1 else name(port) for port in fabric.fabric]
    why = f"The fabric's {fabric}. The = makes names exact: mlx5_1 alone would also match mlx5_10."
    return [Setting("NCCL_IB_HCA", "=" + ",".join(sorted(devices, key=in_order)), why, source)]


def gid_index(facts: Facts) -> list[Setting]:
    """Address index of RoCE ports; needed only by NCCL before 2.21."""
    fabric = adapters(facts)
    if fabric is None or fabric.kind != "roce":
        return []
    installed = facts.get("programs", {}).get("nccl")
    index, source = _common_index(fabric.fabric), guide("NCCL_IB_GID_INDEX") + " (since 2.21: -1)"
    if installed is None:
        would = f"set it to {index}" if index is not None else "find the index with show_gids"
        why = f"NCCL's version was not found. From 2.21 on it chooses itself; for an older one, {would}."
        return [Setting("NCCL_IB_GID_INDEX", None, why, source)]
    if version(installed) >= SELECTS_GID:
        why = f"NCCL {installed} finds the RoCE v2 address of each port itself: a fixed index fails if they differ."
        return [Setting("NCCL_IB_GID_INDEX", None, why, source)]
    if index is None:
        why = f"NCCL {installed} needs it, and no index is a RoCE v2 IPv4 address on all ports: update NCCL to 2.21."
        return [Setting("NCCL_IB_GID_INDEX", None, why, source)]
    why = f"NCCL {installed} would take index 0, RoCE v1; {index} is RoCE v2 with IPv4 on every port of the fabric."
    return [Setting("NCCL_IB_GID_INDEX", str(index), why, source)]


def _common_index(ports: tuple[Facts, ...]) -> int | None:
    """Lowest index that is a RoCE v2 address with IPv4 on every port."""
    fitting = [
        {g["index"] for g in port["gids"] if g["type"] == "RoCE v2" and g["gid"].startswith(IPV4_GID)} for port in ports
    ]
    return min(set.intersection(*fitting), default=None) if fitting else None


def cross_nic(facts: Facts) -> list[Setting]:
    """Keep rings on their rail if one rail cannot reach another."""
    fabric = adapters(facts)
    if fabric is None or fabric.kind not in ("roce", "infiniband") or len(fabric.fabric) < 2:
        return []
    source, isolated = guide("NCCL_CROSS_NIC"), _isolated(fabric.kind, fabric.fabric, facts)
    if isolated:
        why = "Each port is in a subnet of its own, and none has a gateway: a ring must stay on one rail."
        return [Setting("NCCL_CROSS_NIC", "0", why, source)]
    reason = "The ports share a subnet or a gateway" if isolated is False else "The ports' subnets are not known"
    return [
        Setting("NCCL_CROSS_NIC", None, f"{reason}: NCCL's default (2) crosses rails only if that is faster.", source)
    ]


def _isolated(kind: str, ports: tuple[Facts, ...], facts: Facts) -> bool | None:
    """Return True if every port is in a subnet it cannot leave; None if unknown."""
    if kind == "infiniband":
        prefixes = [next((g["gid"][:19] for g in port["gids"] if g["index"] == 0), None) for port in ports]
        return None if None in prefixes else LINK_LOCAL not in prefixes and len(set(prefixes)) == len(ports)
    interfaces, routes = facts["names"].get("interfaces"), facts["names"].get("routes")
    if interfaces is None or routes is None:
        return None
    subnets = [{str(ip_interface(a).network) for a in interfaces.get(port["net"] or "", ())} for port in ports]
    if not all(subnets):
        return None
    apart = sum(map(len, subnets)) == len(set.union(*subnets))
    leaving = {route["dev"] for route in routes if route["gateway"]}
    return apart and not leaving & {port["net"] for port in ports}
