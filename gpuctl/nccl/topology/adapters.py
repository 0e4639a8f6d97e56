"""Which adapters of a node carry the fabric, and how data gets from them to the GPUs: read out of a node's facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.domain.gpudirect import DMABUF, EFA_PEERMEM, PEERMEM, has_dmabuf

Facts = Mapping[str, Any]  # what gpuhost/facts/gather.py gives for one node

ACTIVE = "ACTIVE"
WORDS = {"efa": "EFA", "infiniband": "InfiniBand", "roce": "RoCE"}


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
        return f"{len(self.fabric)} {WORDS[self.kind]} ports{rate}"


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
    best = f"not of the fabric: the {counts[kind, rate]} {WORDS[kind]} ports carry most in sum"
    fabric = tuple(p for p in fit if _class(p) == (kind, rate))
    others = [(p, left.get(name(p), best)) for p in ports if p not in fabric]
    return Adapters(kind, rate, fabric, tuple(others))


def rails(fleet: Mapping[str, Facts]) -> tuple[str, ...]:
    """The fabric's ports that every node has, as NCCL_IB_HCA takes one: "mlx5_0", "mlx5_0:1" where cards have several.

    None where a node's are unknown or of another kind, nor on EFA, whose devices no variable of NCCL's chooses among.
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
    """All RDMA devices of a node, EFA's, too; None where nothing was read."""
    ports = facts.get("rdma", {}).get("ports")
    return None if ports is None else tuple(sorted({port["device"] for port in ports}, key=in_order))


def in_order(text: str) -> list[tuple[int, str]]:
    """A key for names: mlx5_2 before mlx5_10."""
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
    """Interfaces of the default route: of the main table's, the one with the lowest metric, which alone is used.

    Tables beside it serve policy routing: there each rail may have a default route of its own.
    """
    routes = facts.get("names", {}).get("routes") or []
    defaults = [r for r in routes if r["dst"] == "default" and r["gateway"] and r.get("table", "main") == "main"]
    lowest = min((route.get("metric", 0) for route in defaults), default=0)
    return {route["dev"] for route in defaults if route["dev"] and route.get("metric", 0) == lowest}


def peer_memory(facts: Facts) -> str | None:
    """How GPU memory reaches an adapter: a module's name, "DMA-BUF", "" for no way at all; None where it is not known.

    NCCL takes DMA-BUF where kernel and driver have it, else the peer memory module. On EFA the older of Amazon's
    drivers did it without a module, so that there the absence of one proves nothing.
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
