"""What this host is called, its addresses and routes, and what it takes other names to mean."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..host import Host, Result
from . import neighbours

MAIN = "main"
AT_ONCE = 32
LIMIT_S = 10.0  # a resolver asks two servers twice, five seconds each, before it gives up


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{hostname, instance, reached_at, interfaces, routes, switches, peers}.

    `reached_at`: the address that the login came to. `switches` as facts/neighbours.py has them.

    `interfaces`: name -> its addresses with prefix ("10.1.0.7/16"), those that are up. `routes`: {dst, dev, gateway,
    table, metric}, one for each next hop.
    `peers`: name -> {forward, reverse, back}: addresses of the name, names of the address, and where the name itself
    is not known, addresses of the first of those names; empty where there are none, None where nobody knows (or for
    `back`, where it was not looked for).
    """
    unread: dict[str, str] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        peers = list(pool.map(lambda peer: _look_up(host, peer), request.get("look_up", ())))
    tag = host.read_or_none("/sys/class/dmi/id/board_asset_tag") or ""
    return {
        "hostname": host.value("/proc/sys/kernel/hostname") or (None if host.root else os.uname().nodename),
        "instance": tag.strip() if tag.startswith("i-") else None,  # EC2's Nitro machines carry their id there
        "reached_at": request["user"].came_to or None,
        "interfaces": _interfaces(host, unread),
        "routes": _routes(host, unread),
        "switches": neighbours.read(host, unread),
        "peers": {peer["name"]: found for peer, found in zip(request.get("look_up", ()), peers)},
        "unread": unread,
    }


def _look_up(host: Host, peer: Mapping[str, str]) -> dict[str, Any]:
    """By the host's own resolver, as its programs do it: files, DNS, whatever nsswitch.conf says."""
    forward = host.run("getent", "ahosts", peer["name"], limit=LIMIT_S)
    reverse = host.run("getent", "hosts", peer["address"], limit=LIMIT_S)
    names = [name for row in _rows(reverse) for name in row[1:]]
    # An inventory may call a host what nobody else does: then the name it has by its address is what counts.
    back = host.run("getent", "ahosts", names[0], limit=LIMIT_S) if names and not forward.ok else None
    return {
        "forward": _addresses(forward),
        "reverse": sorted(set(names)) if _answered(reverse) else None,
        "back": _addresses(back) if back else None,
        "said": next((said.said for said in (forward, reverse) if not _answered(said)), None),
    }


def _answered(said: Result) -> bool:
    """Whether getent could look: 2 is that it found nothing."""
    return said.code in (0, 2)


def _addresses(said: Result) -> list[str] | None:
    return sorted({row[0] for row in _rows(said)}) if _answered(said) else None


def _rows(said: Result) -> list[list[str]]:
    return [line.split() for line in said.out.splitlines() if line.strip()] if said.ok else []


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


def _routes(host: Host, unread: dict[str, str]) -> list[dict[str, Any]] | None:
    """Every table's: hosts with several adapters route each by its own. iproute2 leaves out the name of "main"."""
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
    said = host.run(*argv, limit=20)
    try:
        if said.ok:
            found: list[dict[str, Any]] = json.loads(said.out or "[]")
            return found
        unread[what] = said.said
    except ValueError as error:
        unread[what] = f"{' '.join(argv)} printed no JSON: {error}"
    return None
