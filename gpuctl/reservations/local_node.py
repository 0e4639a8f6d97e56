"""This host as a node: the engine runs in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuctl.engine import gpu_sessions, gpuhost_host
from gpuctl.reservations.agent import Unable, VisitedNode


def local_node(  # noqa: PLR0913 - a node, and the folder of a test
    name: str,
    gpus: int,
    service: str,
    root: Path = Path("/"),
    end_s: float = gpu_sessions.END_S,
    *,
    label: str = "",
) -> VisitedNode:
    """Devices below `root`. Its sessions have one place on a host, wherever a service has its database."""
    host = gpuhost_host.Host(root)

    def visit(request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return gpu_sessions.run(host, request)
        except OSError as error:  # this host is never out of contact
            raise Unable(str(error)) from error

    return VisitedNode(name, gpus, service, visit, {"end_s": end_s, "label": label})
