"""Capabilities of this process."""

from __future__ import annotations

import re

from ..host import Host

SYS_ADMIN, SYS_RESOURCE = 21, 24
EVERYBODY = ["0", "0", "4294967295"]


def may(host: Host, capability: int) -> bool:
    """True if this process has a capability on the machine, or if that cannot be read."""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", host.read_or_none("/proc/self/status") or "", re.MULTILINE)
    # In a user namespace of its own a container has all capabilities, but none on the machine.
    users = (host.read_or_none("/proc/self/uid_map") or "").split()
    return users in ([], EVERYBODY) and (effective is None or bool(int(effective.group(1), 16) >> capability & 1))
