"""The switch at the other end of each network interface, as LLDP tells where lldpd runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..host import Host

LLDPCLI = "lldpcli"
FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin")


def read(host: Host, unread: dict[str, str]) -> dict[str, str] | None:
    """Interface -> the switch's own name; {} where no lldpd is installed, None (and why) where it did not say."""
    said = host.run(LLDPCLI, "-f", "json0", "show", "neighbors", limit=10)
    if said.code == 127:
        if not any(host.exists(f"{folder}/{LLDPCLI}") for folder in FOLDERS):
            return {}
        unread["switches"] = f"{LLDPCLI} is for root and the group _lldpd"
        return None
    if not said.ok:
        unread["switches"] = f"{LLDPCLI}: {said.said}"
        return None
    try:
        return switches(json.loads(said.out))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        unread["switches"] = f"{LLDPCLI} printed what is not understood: {error!r}"
        return None


def switches(told: Mapping[str, Any]) -> dict[str, str]:
    """Of lldpcli's form json0. An interface with two bridges at its other end, or one without a name, is left out."""
    found: dict[str, set[str]] = {}
    for row in told["lldp"]:
        for interface in row.get("interface", ()):
            own = found.setdefault(interface["name"], set())
            own.update(_name(chassis) for chassis in interface.get("chassis", ()) if _bridges(chassis))
    return {name: own.pop() for name, own in found.items() if len(own) == 1 and "" not in own}


def _bridges(chassis: Mapping[str, Any]) -> bool:
    return any(c.get("type") == "Bridge" and c.get("enabled") for c in chassis.get("capability", ()))


def _name(chassis: Mapping[str, Any]) -> str:
    return next((name["value"] for name in chassis.get("name", ())), "")
