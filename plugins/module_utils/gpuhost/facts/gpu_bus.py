"""NVIDIA GPUs on the PCI bus, which still shows one that the driver has lost."""

from __future__ import annotations

import re

from ..host import Host
from ..topology import NVIDIA, PCI

_NUMBER = re.compile(r"0x[0-9a-f]{4,6}")
DISPLAY = "0x03"  # class of graphics cards and of GPUs without a display


def count(host: Host, unread: dict[str, str]) -> int | None:
    """Number of GPUs; None with a reason if a device cannot be read, as it may be one."""
    if not host.exists(PCI):
        unread["on_bus"] = f"{PCI} is missing"
        return None
    number = 0
    for address in host.listdir(PCI):
        try:
            values = [(host.value(f"{PCI}/{address}/{name}") or "").lower() for name in ("class", "vendor")]
        except OSError as error:
            unread["on_bus"] = f"{error.filename}: {error.strerror}"
            return None
        if not all(map(_NUMBER.fullmatch, values)):
            unread["on_bus"] = f"{PCI}/{address} names no class and vendor"
            return None
        number += values[0].startswith(DISPLAY) and values[1] == NVIDIA
    return number
