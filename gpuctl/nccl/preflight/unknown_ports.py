"""What is not known of a node's ports, so that it is not taken for a port that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpuctl.domain.findings import Finding
from gpuctl.nccl.preflight.checks import Facts, Fleet, get, unread, usual, why
from gpuctl.nccl.topology.adapters import ACTIVE, name


def untold(rule: str, fleet: Fleet) -> dict[str, Finding]:
    """Node -> an UNKNOWN for all its ports of which it is not known whether they are the fabric's."""
    # Where no driver tells a rate, none differs by it.
    rated = any(port["rate_gbps"] is not None for facts in fleet.values() for port in _ports(facts))
    unclear = {}
    for node, facts in fleet.items():
        lacking = [(name(port), file) for port in _ports(facts) for file in _lacking(port) if rated or file != "rate"]
        if lacking:
            what = ", ".join(f"{file} of {port}" for port, file in lacking)
            reason = why(facts, "rdma", *(f"{port} {file}" for port, file in lacking))
            unclear[node] = unread(rule, node, f"{what} {'is' if len(lacking) == 1 else 'are'}", reason)
    return unclear


def _ports(facts: Facts) -> Sequence[Facts]:
    return get(facts, "rdma", "ports") or ()


def _lacking(port: Facts) -> Iterator[str]:
    """The kernel's files that would tell; a port that is down needs no rate, and some drivers give it none."""
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
    """Nodes that differ from the usual, perhaps only since nobody knows which of their ports is for management."""
    blind = {node for node in shown if _is_blind(fleet[node])}
    others = {node: ports for node, ports in shown.items() if node not in blind}
    return [node for node in shown if node in blind and others and shown[node] != usual(others)]


def _is_blind(facts: Facts) -> bool:
    """Whether a port may carry the default route without our knowing: all on RoCE have an interface."""
    ports = [p for p in _ports(facts) if p["state"] == ACTIVE and not p["efa"]]
    if any(p["net"] is None and p["link"] != "InfiniBand" for p in ports):
        return True
    routes = get(facts, "names", "routes")
    whole = routes is not None and not any(map(_is_half, routes))
    return not whole and any(p["net"] for p in ports)


def _is_half(route: Facts) -> bool:
    """Whether it may be the way out, and does not say so."""
    return None in (route["dst"], route["dev"]) or (route["dst"] == "default" and route["gateway"] is None)
