"""GPUDirect RDMA: peer memory modules, and the kernel release, which decides on DMA-BUF."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..host import Host

if TYPE_CHECKING:
    from .answer_types import PeerMemoryFacts

MODULES = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem", "gdrdrv", "nvidia_drm")


def read(host: Host, request: Mapping[str, Any]) -> PeerMemoryFacts:
    """{kernel, modules}: release of the running kernel, and the loaded ones of MODULES; None if unknown."""
    unread: dict[str, str] = {}
    kernel = host.value("/proc/sys/kernel/osrelease") or (None if host.root else os.uname().release)
    modules = [name for name in MODULES if host.exists(f"/sys/module/{name}")] if host.exists("/sys/module") else None
    if kernel is None:
        unread["kernel"] = "/proc/sys/kernel/osrelease is missing"
    if modules is None:
        unread["modules"] = "/sys/module is missing"
    return {"kernel": kernel, "modules": modules, "unread": unread}
