"""Check how much memory the pods' user may lock, which RDMA needs: read in a pod, because no API reports it."""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.memlock import judge
from gpuctl.domain.pod_status import is_ready
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cluster import Cluster

ASK = "ulimit -l; grep CapEff /proc/self/status"
ANSWER_S = 10.0


def check_limit(cluster: Cluster, env: Environment, pods: Iterable[Object]) -> list[Finding]:
    """Return one finding for RDMA, none for TCP; `pods` are the environment's."""
    if not env.rdma:
        return []
    ready = sorted(pod["metadata"]["name"] for pod in pods if is_ready(pod))
    if not ready:
        message = "no pod runs yet in which to check it; deploy checks once one does"
        return [Finding("memlock", env.name, Verdict.UNKNOWN, message)]
    try:
        command = pod_exec.Command(["sh", "-c", ASK], CONTAINER, silent_s=ANSWER_S)
        _, output = pod_exec.read(cluster, ready[0], command)
    except GpuctlError as error:
        return [Finding("memlock", f"Pod {ready[0]}", Verdict.UNKNOWN, f"it cannot be checked: {error.wrong}")]
    return [judge(f"Pod {ready[0]}", output.decode(errors="replace"))]
