"""Ask Kubernetes nodes themselves: a short-lived privileged pod on each, and none of them afterwards."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named, plural
from gpuctl.domain import pod_status
from gpuctl.edges.kube import python
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.edges.ssh import Failure
from gpuctl.engine import script
from gpuctl.hosts import fan_out
from gpuctl.hosts.model import HostResult
from gpuctl.nodes import probe_pod

POLL_S = 0.5
REMOVE_S = 20.0
SPARE_S = 60  # beyond the limit of a question, until the kubelet ends a pod that nobody removed


@dataclass(frozen=True)
class ProbeRequest:
    """`image`: has sh, sleep and nsenter, as busybox. `namespace`: of the pods. `timeout_s`: for one node."""

    image: str
    namespace: str = ""
    forks: int = 64
    timeout_s: float = 60.0


@dataclass(frozen=True)
class Answers:
    """`results`: in the order of the nodes. `left`: pods that could not be removed."""

    results: Sequence[HostResult]
    left: Sequence[str] = ()


def refused(cluster: Cluster) -> str:
    """Which right is missing to ask nodes by pods of the cluster's namespace; "" if none."""
    pod = cluster.kind("v1", "Pod")
    wanted = {"create pods": ("create", pod), "delete pods": ("delete", pod)}
    wanted |= {"get pods": ("get", pod), "exec into pods": ("create", replace(pod, plural="pods/exec"))}
    missing = [name for name, (verb, kind) in wanted.items() if not cluster.may(verb, kind)]
    return f"you have no permission to {named(missing)} in the namespace {cluster.namespace}" if missing else ""


def ask(
    cluster: Cluster,
    nodes: Sequence[str],
    request: ProbeRequest,
    question: Mapping[str, Any],
    on_result: Callable[[HostResult], HostResult] = lambda result: result,
) -> Answers:
    """Ask the nodes, `forks` at a time; every pod is removed, also after Ctrl-C.

    `question`: as a host gets it over ssh. `on_result` gets each result as it arrives, and returns what to keep of it.
    """
    run, stop = secrets.token_hex(5), Stop()
    token = f"gpuctl-{secrets.token_hex(8)} "
    program = script(json.dumps(question), token)

    def visit(numbered: tuple[int, str]) -> HostResult:
        number, node = numbered
        started = time.monotonic()
        output = _visit(cluster, node, f"gpuctl-probe-{run}-{number}", run, program, request, stop)
        return on_result(fan_out.result_of(node, output, token, question, time.monotonic() - started))

    try:
        with ThreadPoolExecutor(max(1, min(request.forks, len(nodes)))) as pool:
            try:
                results = list(pool.map(visit, enumerate(nodes)))
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        left = _remove(cluster, run)
    return Answers(results, left)


def leftovers(left: Sequence[str], namespace: str) -> str:
    """Note on pods that could not be removed; "" without."""
    if not left:
        return ""
    hint = f"kubectl delete pod -n {namespace} {' '.join(left)}"
    return f"{plural(len(left), 'pod')} of this run could not be removed, and end by themselves: {hint}"


def _visit(  # noqa: PLR0913, PLR0917 - one job of the pool
    cluster: Cluster, node: str, name: str, run: str, program: bytes, request: ProbeRequest, stop: Stop
) -> bytes | Failure:
    limit_s = round(request.timeout_s)
    try:
        pod = cluster.apply(probe_pod.manifest(name, node, request.image, run, limit_s + SPARE_S))
    except GpuctlError as error:
        return Failure(f"no pod may be made there: {error.wrong}", error.hint)
    try:
        if wrong := _wait(cluster, name, time.monotonic() + limit_s, stop):
            return Failure(wrong)
        return python.run_on_node(python.Container(cluster, name, probe_pod.CONTAINER), program, limit_s, stop)
    except GpuctlError as error:
        return Failure(error.wrong, error.hint)
    finally:
        _delete(cluster, pod)


def _wait(cluster: Cluster, name: str, end: float, stop: Stop) -> str:
    """Why the pod does not run; "" once it does."""
    kind = cluster.kind("v1", "Pod")
    while time.monotonic() < end:
        pod = cluster.get(kind, name)
        if pod is None:
            return "its pod was deleted"
        if wrong := probe_pod.failure(pod):
            return f"its pod does not run: {wrong}"
        if pod_status.runs(pod):
            return ""
        if stop.wait(POLL_S):
            return "interrupted"
    return "its pod did not start in time"


def _delete(cluster: Cluster, pod: Object) -> None:
    try:
        cluster.delete(pod)
    except GpuctlError:
        return  # `_remove` tries again, and tells


def _remove(cluster: Cluster, run: str) -> list[str]:
    """Remove all pods of the run, also one whose creation was not confirmed; return the names of those left."""
    labels = {**probe_pod.LABELS, probe_pod.RUN: run}
    try:
        left = cluster.remove([cluster.kind("v1", "Pod")], labels, REMOVE_S)
    except GpuctlError as error:
        return [f"-l {probe_pod.RUN}={run} ({error.wrong})"]
    return [pod["metadata"]["name"] for pod in left]
