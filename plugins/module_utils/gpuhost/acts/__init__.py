"""Acts on this host that somebody has confirmed: each checks again that its object is still what was shown.

An act with `check` reads only. Its answer is typed by `answer_types.ACTS`; texts are for people.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..host import Host

# Act -> its module, imported when it is requested.
MODULES = {
    "end processes": "end_processes",
    "cancel job": "slurm_job",
    "slurm drain": "slurm_node",
    "restart": "restart",
    "reset gpu": "gpu_reset",
    "reboot": "reboot",
    "gpu sessions": "gpu_sessions",
}


def run(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out the act of a request, and leave a line in the system's log unless it only reads."""
    act = import_module(f"{__name__}.{MODULES[request['act']]}").run
    reads_only = request.get("check") or request.get("do") == "observe"  # the latter every few seconds
    if not reads_only and not host.root:
        _log(f"{request['act']}: {request.get('about', '')} by {request.get('actor', '')}: {request.get('reason', '')}")
    answer: dict[str, Any] = act(host, request)
    return answer


def _log(text: str) -> None:
    """Write to the system's log, as far as there is one."""
    with contextlib.suppress(ImportError, OSError):
        import syslog

        syslog.openlog("gpuctl")
        syslog.syslog(syslog.LOG_NOTICE, " ".join(text.split())[:900])
