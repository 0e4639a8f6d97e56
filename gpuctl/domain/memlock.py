"""How much memory a process may lock, which RDMA needs."""

from __future__ import annotations

import re

from gpuctl.domain.findings import Finding, Verdict

IPC_LOCK = 1 << 14  # linux/capability.h: exempt from the limit
HINT = "raise LimitMEMLOCK of the nodes' container runtime, or set security.ipc_lock and rdma_as_root"


def judge(subject: str, output: str) -> Finding:
    """Judge `output`: the limit in KiB or "unlimited", and the process's capabilities in hexadecimal."""
    limit = re.search(r"^(unlimited|\d+)$", output, re.MULTILINE)
    capabilities = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", output, re.MULTILINE)
    if capabilities and int(capabilities[1], 16) & IPC_LOCK:
        return Finding("memlock", subject, Verdict.OK, "IPC_LOCK is in effect: no limit applies")
    if limit is None:
        return Finding("memlock", subject, Verdict.UNKNOWN, f"it printed no limit: {output.strip()[:100]!r}")
    if limit[1] == "unlimited":
        return Finding("memlock", subject, Verdict.OK, "unlimited")
    message = f"its user may lock {int(limit[1]) / 1024:g} MiB: RDMA fails beyond that"
    return Finding("memlock", subject, Verdict.WARN, message, hint=HINT)
