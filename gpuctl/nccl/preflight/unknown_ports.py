"""Unknown facts about ports, so that an unreadable port does not count as missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuctl.domain.findings import Finding
from gpuctl.domain.node_facts import Facts, Fleet, get, unread, usual, why
from gpuctl.nccl.topology.adapters import ACTIVE, name


def unreadable_ports(rule: str, fleet: Fleet) -> dict[str, Finding]:
    """Node -> one UNKNOWN finding for all ports that may or may not belong to the fabric."""
    # If no driver reports a rate, ports do not differ by it.
    rated = any(port["rate_gbps"] is not None for facts in fleet.values() for port in _ports(facts))
    unclear = {}
    for node, facts in fleet.items():
        lacking = [(name(port), file) for port in _ports(facts) for file in _lacking(port) if rated or file != "rate"]
        if lacking:
            missing = ", ".join(f"{file} of {port}" for port, file in lacking)
            reason = why(facts, "rdma", *(f"{port} {file}" for port, file in lacking))
            unclear[node] = unread(rule, node, f"{missing} {'is' if len(lacking) == 1 else 'are'}", reason)
    return unclear


def _ports(facts: Facts) -> Sequence[Facts]:
    return get(facts, "rdma", "ports") or ()


def _lacking(port: Facts) -> Iterator[str]:
    """Kernel files that could not be read; a port that is down needs no rate, and some drivers report none."""
    if port["efa"] is None:
        yield "vendor"
    if port["state"] is None:
        yield "state"
    if port["state"] in (None, ACTIVE):
        if port["rate_gbps"] is None:
            yield "rate"
        if port["link"] is None and not port["efa"]:
            yield "link_layer"


def unplaced(shown: Mapping[str, str], fleet: Fleet) -> list[str]:
    """Nodes that differ from the majority, possibly because their management port is unknown."""
    blind = {node for node in shown if _is_blind(fleet[node])}
    others = {node: ports for node, ports in shown.items() if node not in blind}
    return [node for node in shown if node in blind and others and shown[node] != usual(others)]


def _is_blind(facts: Facts) -> bool:
    """True if a port may carry the default route, but routes or interfaces are unknown: RoCE ports have interfaces."""
    ports = [p for p in _ports(facts) if p["state"] == ACTIVE and not p["efa"]]
    if any(p["net"] is None and p["link"] != "InfiniBand" for p in ports):
        return True
    routes = get(facts, "names", "routes")
    whole = routes is not None and not any(map(_is_half, routes))
    return not whole and any(p["net"] for p in ports)


def _is_half(route: Facts) -> bool:
    """True if the route may be the default route, but its fields are unknown."""
    return None in (route["dst"], route["dev"]) or (route["dst"] == "default" and route["gateway"] is None)
