"""Error counters of network adapters, read twice: what rises now is a fault, what rose last month may be none."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from ..host import Host
from ..topology import AMAZON

VERBS = "/sys/class/infiniband"
NET = "/sys/class/net"
WINDOW_S = 2.0  # if the request has none
LONGEST_S = 600.0
# Values, not counts: settings that change nothing.
NO_COUNTS = frozenset({"lifespan"})


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{window_s, ports, links, unread}: counters at the beginning and the end of the window.

    `ports`: "mlx5_0:1" -> {counter: {before, after}}; `links`: interface -> the same of its Ethernet driver.
    `window_s` in the request: seconds to wait between the readings.
    """
    unread: dict[str, str] = {}
    if not host.exists("/sys/class"):
        return {"window_s": None, "ports": None, "links": None, "unread": {"ports": "/sys/class is missing"}}
    wanted = min(float(request.get("window_s") or WINDOW_S), LONGEST_S)
    started = time.monotonic()
    before = (_ports(host, unread), _links(host, unread))
    if not any(before):  # no adapter: nothing to wait for
        return {"window_s": wanted, "ports": {}, "links": {}, "unread": unread}
    time.sleep(max(0.0, wanted - (time.monotonic() - started)))
    after = (_ports(host, unread), _links(host, unread))
    ports, links = (_paired(early, late) for early, late in zip(before, after))
    return {"window_s": round(time.monotonic() - started, 3), "ports": ports, "links": links, "unread": unread}


def _paired(before: Mapping[str, dict[str, int]], after: Mapping[str, dict[str, int]]) -> dict[str, Any]:
    """Only what was read both times."""
    return {
        name: {
            counter: {"before": value, "after": after[name][counter]}
            for counter, value in values.items()
            if counter in after[name]
        }
        for name, values in before.items()
        if name in after
    }


def _ports(host: Host, unread: dict[str, str]) -> dict[str, dict[str, int]]:
    found = {}
    for path in host.glob(f"{VERBS}/*/ports/*"):
        device, number = path.split("/")[4], path.rpartition("/")[2]
        name = f"{device}:{number}"
        values: dict[str, int] = {}
        for folder in (f"{path}/counters", f"{path}/hw_counters"):
            for counter in set(host.listdir(folder)) - NO_COUNTS:
                try:
                    text = host.value(f"{folder}/{counter}") or ""
                except OSError as error:  # drivers refuse what a port does not have
                    if error.errno not in (22, 95):  # EINVAL, EOPNOTSUPP
                        unread[f"{name} {counter}"] = error.strerror or str(error)
                    continue
                if text.isdigit():
                    values[counter] = int(text)
                elif text and "N/A" not in text:
                    unread[f"{name} {counter}"] = text[:100]
        found[name] = values
    return found


def _links(host: Host, unread: dict[str, str]) -> dict[str, dict[str, int]]:
    """Counters of Ethernet interfaces on a bus: the kernel's errors, and Amazon's allowances."""
    found = {}
    for net in host.listdir(NET):
        if not host.exists(f"{NET}/{net}/device"):
            continue
        values = {}
        for counter in ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors"):
            text = _value(host, f"{NET}/{net}/statistics/{counter}")
            if text and text.isdigit():
                values[counter] = int(text)
        changes = _value(host, f"{NET}/{net}/carrier_down_count")
        if changes and changes.isdigit():
            values["carrier_down_count"] = int(changes)
        if _value(host, f"{NET}/{net}/device/vendor") == AMAZON:
            values.update(allowances(host, net, unread))
        found[net] = values
    return found


def allowances(host: Host, net: str, unread: dict[str, str]) -> dict[str, int]:
    """Packets that AWS dropped or delayed, by allowance of the instance; {} with a reason in `unread`."""
    result = host.run("ethtool", "-S", net, limit=10)
    if not result.ok:
        unread[f"{net} allowances"] = result.last_line
        return {}
    return {
        name: int(value)
        for name, value in re.findall(r"^\s*(\w+_allowance_exceeded): (\d+)$", result.out, re.MULTILINE)
    }


def _value(host: Host, path: str) -> str | None:
    try:
        return host.value(path)
    except OSError:
        return None
