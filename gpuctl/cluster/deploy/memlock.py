"""How much memory the pods' user may really lock, which RDMA needs: asked in a pod, for no API tells."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.pod_status import is_ready
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cluster import Cluster

ASK = "ulimit -l; grep CapEff /proc/self/status"
IPC_LOCK = 1 << 14  # linux/capability.h: who has it is held by no limit
ANSWER_S = 10.0
HINT = "raise LimitMEMLOCK of the nodes' container runtime, or set security.ipc_lock and rdma_as_root"


def look(cluster: Cluster, env: Environment, pods: Iterable[Object]) -> list[Finding]:
    """One finding for RDMA, none for TCP; `pods` are the environment's own."""
    if not env.rdma:
        return []
    ready = sorted(pod["metadata"]["name"] for pod in pods if is_ready(pod))
    if not ready:
        words = "no pod runs yet in which to ask; deploy asks when one does"
        return [Finding("memlock", env.name, Verdict.UNKNOWN, words)]
    said: list[bytes] = []
    try:
        command = pod_exec.Command(["sh", "-c", ASK], CONTAINER, silent_s=ANSWER_S)
        pod_exec.run(cluster, ready[0], command, out=said.append)
    except GpuctlError as error:
        return [Finding("memlock", f"Pod {ready[0]}", Verdict.UNKNOWN, f"it cannot be asked: {error.wrong}")]
    return [judge(f"Pod {ready[0]}", b"".join(said).decode(errors="replace"))]


def judge(subject: str, said: str) -> Finding:
    """`said`: the limit in KiB or "unlimited", and the process's capabilities in hexadecimal."""
    limit = re.search(r"^(unlimited|\d+)$", said, re.MULTILINE)
    held = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", said, re.MULTILINE)
    if held and int(held[1], 16) & IPC_LOCK:
        return Finding("memlock", subject, Verdict.OK, "IPC_LOCK is in effect: no limit holds")
    if limit is None:
        return Finding("memlock", subject, Verdict.UNKNOWN, f"it said nothing of its limit: {said.strip()[:100]!r}")
    if limit[1] == "unlimited":
        return Finding("memlock", subject, Verdict.OK, "unlimited")
    words = f"its user may lock {int(limit[1]) / 1024:g} MiB: RDMA fails beyond that"
    return Finding("memlock", subject, Verdict.WARN, words, hint=HINT)
