"""Fabric adapters of a node, and the path from them to GPU memory, from the node's facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.domain.gpudirect import DMABUF, EFA_PEERMEM, PEERMEM, has_dmabuf

Facts = Mapping[str, Any]  # what gpuhost/facts/gather.py gives for one node

ACTIVE = "ACTIVE"
LABELS = {"efa": "EFA", "infiniband": "InfiniBand", "roce": "RoCE"}


@dataclass(frozen=True)
class Adapters:
    """A node's ports: those of the fabric, and the others with the reason each is left out.

    `kind`: "efa", "infiniband", "roce", or "" where there is no port to use. `rate_gbps` is that of one port.
    """

    kind: str
    rate_gbps: float | None
    fabric: tuple[Facts, ...] = ()
    others: tuple[tuple[Facts, str], ...] = ()

    def __str__(self) -> str:
        if not self.kind:
            return "no active RDMA port"
        rate = "" if self.rate_gbps is None else f" of {self.rate_gbps:g} Gb/s"
        return f"{len(self.fabric)} {LABELS[self.kind]} ports{rate}"


def name(port: Facts) -> str:
    """As NCCL writes it: mlx5_0:1."""
    return f"{port['device']}:{port['port']}"


def adapters(facts: Facts) -> Adapters | None:
    """Choose the fabric's ports: of those that are active, the kind that carries most in sum.

    Storage and management ports are fewer and slower, or carry the default route; one that does is the fabric all the
    same where no other is active. None where nothing was read.
    """
    ports = facts.get("rdma", {}).get("ports")
    if ports is None:
        return None
    left = {name(p): why for p in ports if (why := _unfit(p, outward(facts)))}
    fit = [p for p in ports if name(p) not in left]
    if not fit:
        left = {name(p): why for p in ports if (why := _unfit(p, set()))}
        fit = [p for p in ports if name(p) not in left]
    if not fit:
        return Adapters("", None, (), tuple((p, left[name(p)]) for p in ports))
    counts = Counter(_class(p) for p in fit)
    kind, rate = max(counts, key=lambda c: ((c[1] or 0.0) * counts[c], c[1] or 0.0, counts[c]))
    best = f"not of the fabric: the {counts[kind, rate]} {LABELS[kind]} ports have the highest total bandwidth"
    fabric = tuple(p for p in fit if _class(p) == (kind, rate))
    others = [(p, left.get(name(p), best)) for p in ports if p not in fabric]
    return Adapters(kind, rate, fabric, tuple(others))


def rails(fleet: Mapping[str, Facts]) -> tuple[str, ...]:
    """Fabric ports that every node has, in the form of NCCL_IB_HCA: "mlx5_0", or "mlx5_0:1" if a card has several.

    Empty if the ports of a node are unknown or of another kind, and on EFA, where no NCCL variable selects devices.
    """
    by_node = [adapters(facts) for facts in fleet.values()]
    chosen = [a for a in by_node if a is not None]
    if len(chosen) < len(by_node) or len({a.kind for a in chosen}) != 1 or chosen[0].kind in ("", "efa"):
        return ()
    common = set.intersection(*({(p["device"], p["port"]) for p in a.fabric} for a in chosen))
    several = {p["device"] for facts in fleet.values() for p in facts["rdma"]["ports"] if p["port"] != 1}
    names = (device if device not in several else f"{device}:{port}" for device, port in common)
    return tuple(sorted(names, key=in_order))


def devices(facts: Facts) -> tuple[str, ...] | None:
    """All RDMA devices of a node, including EFA devices; None if they are unknown."""
    ports = facts.get("rdma", {}).get("ports")
    return None if ports is None else tuple(sorted({port["device"] for port in ports}, key=in_order))


def in_order(text: str) -> list[tuple[int, str]]:
    """Sort key for names with numbers: mlx5_2 before mlx5_10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def _class(port: Facts) -> tuple[str, float | None]:
    kind = "efa" if port["efa"] else "infiniband" if port["link"] == "InfiniBand" else "roce"
    return kind, port["rate_gbps"]


def _unfit(port: Facts, management: set[str]) -> str:
    if port["state"] != ACTIVE:
        return f"its port is {port['state'] or 'in an unknown state'}"
    if port["net"] in management and not port["efa"]:
        return f"it carries the default route ({port['net']}): management"
    return ""


def outward(facts: Facts) -> set[str]:
    """Interfaces of the default route: the one with the lowest metric in the main table, the only one in use.

    Other tables serve policy routing, where each rail may have a default route.
    """
    routes = facts.get("names", {}).get("routes") or []
    defaults = [r for r in routes if r["dst"] == "default" and r["gateway"] and r.get("table", "main") == "main"]
    lowest = min((route.get("metric", 0) for route in defaults), default=0)
    return {route["dev"] for route in defaults if route["dev"] and route.get("metric", 0) == lowest}


def peer_memory(facts: Facts) -> str | None:
    """Path from GPU memory to an adapter: a module's name, "DMA-BUF", or "" for none; None if unknown.

    NCCL uses DMA-BUF if kernel and driver support it, else the peer memory module. Older EFA drivers need no module,
    so a missing module proves nothing there.
    """
    about, modules = facts.get("peer_memory", {}), facts.get("peer_memory", {}).get("modules")
    if modules is None:
        return None
    dmabuf = has_dmabuf(about.get("kernel"), facts.get("gpu", {}).get("open_module"))
    if dmabuf:
        return DMABUF
    ports = adapters(facts)
    efa = ports is not None and ports.kind == "efa"
    loaded = [m for m in ((EFA_PEERMEM,) if efa else PEERMEM) if m in modules]
    return loaded[0] if loaded else None if dmabuf is None or efa else ""
