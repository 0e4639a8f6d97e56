"""The switch at the other end of each network interface, from LLDP if lldpd runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..host import Host

LLDPCLI = "lldpcli"
FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin")


def read(host: Host, unread: dict[str, str]) -> dict[str, str] | None:
    """Interface -> name of its switch; {} without lldpd, None (with the reason in `unread`) if lldpcli failed."""
    result = host.run(LLDPCLI, "-f", "json0", "show", "neighbors", limit=10)
    if result.code == 127:
        if not any(host.exists(f"{folder}/{LLDPCLI}") for folder in FOLDERS):
            return {}
        unread["switches"] = f"{LLDPCLI} is for root and the group _lldpd"
        return None
    if not result.ok:
        unread["switches"] = f"{LLDPCLI}: {result.last_line}"
        return None
    try:
        return switches(json.loads(result.out))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        unread["switches"] = f"{LLDPCLI} printed output that cannot be parsed: {error!r}"
        return None


def switches(lldp: Mapping[str, Any]) -> dict[str, str]:
    """Parse lldpcli's json0. Interfaces with two bridges, or with a nameless one, are left out."""
    bridges: dict[str, set[str]] = {}
    for row in lldp["lldp"]:
        for interface in row.get("interface", ()):
            names = bridges.setdefault(interface["name"], set())
            names.update(_name(chassis) for chassis in interface.get("chassis", ()) if _bridges(chassis))
    return {name: names.pop() for name, names in bridges.items() if len(names) == 1 and "" not in names}


def _bridges(chassis: Mapping[str, Any]) -> bool:
    return any(c.get("type") == "Bridge" and c.get("enabled") for c in chassis.get("capability", ()))


def _name(chassis: Mapping[str, Any]) -> str:
    return next((name["value"] for name in chassis.get("name", ())), "")
