"""What this process may do on the machine: the kernel's capabilities."""

from __future__ import annotations

import re

from ..host import Host

SYS_ADMIN, SYS_RESOURCE = 21, 24
EVERYBODY = ["0", "0", "4294967295"]


def may(host: Host, capability: int) -> bool:
    """Whether a capability is there and counts; where that cannot be read, the attempt will tell."""
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", host.read_or_none("/proc/self/status") or "", re.MULTILINE)
    # A user namespace of its own gives a container every capability, and none that counts outside of it.
    users = (host.read_or_none("/proc/self/uid_map") or "").split()
    return users in ([], EVERYBODY) and (held is None or bool(int(held.group(1), 16) >> capability & 1))
