"""NCCL_SOCKET_IFNAME: the interface whose address other nodes use."""

from __future__ import annotations

from gpuctl.nccl.advise.model import Setting, guide
from gpuctl.nccl.topology.adapters import Facts, outward


def ifname(facts: Facts) -> list[Setting]:
    """Interface with the node's inventory address, else the one of the default route."""
    source, chosen = guide("NCCL_SOCKET_IFNAME"), _chosen(facts)
    if chosen is None:
        return []
    name, reason = chosen
    why = f"{reason}. Else NCCL may start on a bridge of containers, or an address that others do not reach."
    return [Setting("NCCL_SOCKET_IFNAME", f"={name}", why, source)]


def _chosen(facts: Facts) -> tuple[str, str] | None:
    names = facts.get("names", {})
    interfaces: dict[str, list[str]] = names.get("interfaces") or {}
    for reached in (facts.get("address"), names.get("reached_at")):  # the inventory's may be a name, or an outer one
        for name, addresses in interfaces.items():
            if reached in {address.partition("/")[0] for address in addresses}:
                return name, f"{name} has the address the node is reached by"
    leading = sorted(outward(facts))
    return (leading[0], f"{leading[0]} carries the default route") if leading else None


def others(facts: Facts) -> set[str]:
    """Interfaces with an address, except the chosen one."""
    chosen = _chosen(facts)
    interfaces: dict[str, list[str]] = facts.get("names", {}).get("interfaces") or {}
    return {name for name, addresses in interfaces.items() if addresses and (chosen is None or name != chosen[0])}
