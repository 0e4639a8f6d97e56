"""Names, addresses and routes of this host, and how it resolves the names of others."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..host import Host, Result
from . import neighbours

if TYPE_CHECKING:
    from .answer_types import Lookup, NamesFacts, Route

MAIN = "main"
AT_ONCE = 32
LIMIT_S = 10.0  # a resolver tries two servers twice, five seconds each


def read(host: Host, request: Mapping[str, Any]) -> NamesFacts:
    """{hostname, instance, reached_at, interfaces, routes, switches, peers}.

    `reached_at`: the address of this host that the login used. `switches`: see facts/neighbours.py.
    `interfaces`: name -> addresses with prefix ("10.1.0.7/16"), for interfaces that are up. `routes`: {dst, dev,
    gateway, table, metric}, one per next hop.
    `peers`: name -> {forward, reverse, back, error}: addresses of the name; names of the address; and, if the name
    does not resolve, addresses of the first of those names. Empty for none; None if the lookup failed, or for
    `back`, if it was not needed.
    """
    unread: dict[str, str] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        peers = list(pool.map(lambda peer: _look_up(host, peer), request.get("look_up", ())))
    tag = host.read_or_none("/sys/class/dmi/id/board_asset_tag") or ""
    return {
        "hostname": host.value("/proc/sys/kernel/hostname") or (None if host.root else os.uname().nodename),
        "instance": tag.strip() if tag.startswith("i-") else None,  # EC2 Nitro instances have their id there
        "reached_at": request["user"].came_to or None,
        "interfaces": _interfaces(host, unread),
        "routes": _routes(host, unread),
        "switches": neighbours.read(host, unread),
        "peers": {peer["name"]: names for peer, names in zip(request.get("look_up", ()), peers)},
        "unread": unread,
    }


def _look_up(host: Host, peer: Mapping[str, str]) -> Lookup:
    """Resolve by getent, as programs of the host do by nsswitch.conf."""
    forward = host.run("getent", "ahosts", peer["name"], limit=LIMIT_S)
    reverse = host.run("getent", "hosts", peer["address"], limit=LIMIT_S)
    names = [name for row in _rows(reverse) for name in row[1:]]
    # A host may have another name in the inventory than in DNS: then look up the name of its address.
    back = host.run("getent", "ahosts", names[0], limit=LIMIT_S) if names and not forward.ok else None
    return {
        "forward": _addresses(forward),
        "reverse": sorted(set(names)) if _answered(reverse) else None,
        "back": _addresses(back) if back else None,
        "error": next((lookup.last_line for lookup in (forward, reverse) if not _answered(lookup)), None),
    }


def _answered(lookup: Result) -> bool:
    """True if the lookup itself worked; code 2 means no result."""
    return lookup.code in (0, 2)


def _addresses(lookup: Result) -> list[str] | None:
    return sorted({row[0] for row in _rows(lookup)}) if _answered(lookup) else None


def _rows(lookup: Result) -> list[list[str]]:
    return [line.split() for line in lookup.out.splitlines() if line.strip()] if lookup.ok else []


def _interfaces(host: Host, unread: dict[str, str]) -> dict[str, list[str]] | None:
    rows = _json(host, unread, "interfaces", "ip", "-j", "addr", "show", "up")
    if rows is None:
        return None
    return {
        row["ifname"]: [
            f"{a['local']}/{a['prefixlen']}" for a in row.get("addr_info", ()) if a.get("scope") == "global"
        ]
        for row in rows
        if row.get("ifname") and row["ifname"] != "lo"
    }


def _routes(host: Host, unread: dict[str, str]) -> list[Route] | None:
    """Routes of all tables, as hosts with several adapters have one each. iproute2 omits the name of "main"."""
    rows = _json(host, unread, "routes", "ip", "-j", "-4", "route", "show", "table", "all")
    if rows is None:
        return None
    hops = [(row, hop) for row in rows for hop in row.get("nexthops", [row]) if row.get("type", "unicast") == "unicast"]
    return [
        {
            "dst": row.get("dst"),
            "dev": hop["dev"],
            "gateway": hop.get("gateway"),
            "table": str(row.get("table", MAIN)),
            "metric": row.get("metric", 0),
        }
        for row, hop in hops
        if hop.get("dev")
    ]


def _json(host: Host, unread: dict[str, str], what: str, *argv: str) -> list[dict[str, Any]] | None:
    result = host.run(*argv, limit=20)
    try:
        if result.ok:
            rows: list[dict[str, Any]] = json.loads(result.out or "[]")
            return rows
        unread[what] = result.last_line
    except ValueError as error:
        unread[what] = f"{' '.join(argv)} printed no JSON: {error}"
    return None
