"""Width, speed and errors of the PCIe links of GPUs and network adapters."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..host import Host
from ..topology import PCI, devices
from . import gpu_bus

ERRORS = {"fatal": "aer_dev_fatal", "nonfatal": "aer_dev_nonfatal", "correctable": "aer_dev_correctable"}


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{links, unread}: one link for each GPU and NIC; `links` is None if the bus cannot be read."""
    unread: dict[str, str] = {}
    if gpu_bus.count(host, unread) is None:
        return {"links": None, "unread": {"links": unread["on_bus"]}}
    return {"links": [_link(host, d.address, d.kind, unread) for d in devices(host)], "unread": unread}


def _link(host: Host, address: str, kind: str, unread: dict[str, str]) -> dict[str, Any]:
    """`width` in lanes, `speed` in GT/s, now and at most; `port_*`: at most at the other end; errors since boot.

    None: the kernel does not say, as of virtual functions and devices on no PCIe port.
    """
    folder = f"{PCI}/{address}"
    port = _port(host, folder)

    def number(where: str | None, name: str) -> float | None:
        try:
            match = re.match(r"\d+(?:\.\d+)?", (host.value(f"{where}/{name}") or "") if where else "")
        except OSError as error:
            unread[f"{address} {name}"] = error.strerror or str(error)
            return None
        value = float(match.group()) if match else None
        # The kernel writes 255 lanes, and "Unknown speed", where a device fell off the bus or has no link.
        return None if value == 255 else value

    return {
        "address": address,
        "kind": kind,
        "width": number(folder, "current_link_width"),
        "speed": number(folder, "current_link_speed"),
        "most_width": number(folder, "max_link_width"),
        "most_speed": number(folder, "max_link_speed"),
        "port_width": number(port, "max_link_width"),
        "port_speed": number(port, "max_link_speed"),
        "errors": {name: _total(host, f"{folder}/{file}", unread) for name, file in ERRORS.items()},
    }


def _port(host: Host, folder: str) -> str | None:
    """The port at the other end of a device's link: the folder above it."""
    real = os.path.realpath(host.real(folder))
    above = os.path.dirname(real)
    if not re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", os.path.basename(above)):
        return None
    return above[len(host.root) :]


def _total(host: Host, path: str, unread: dict[str, str]) -> int | None:
    """Sum of the errors of a kind; None if the device does not report them."""
    try:
        text = host.read_or_none(path)
    except OSError as error:
        unread[path] = error.strerror or str(error)
        return None
    match = re.search(r"^TOTAL_ERR_\w+ (\d+)$", text or "", re.MULTILINE)
    return int(match.group(1)) if match else None
