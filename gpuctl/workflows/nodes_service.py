"""Restart a service of a node's GPUs, or reset one of them: only where nobody is disturbed, and read back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.run_history import current_user
from gpuctl.domain import node_drain, pod_status
from gpuctl.domain.kube_errors import Conflict, NotFound
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster, Object, name_of, selector
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import Target
from gpuctl.nodes import node_use
from gpuctl.nodes.acts import services
from gpuctl.nodes.acts.model import Consent
from gpuctl.nodes.acts.services import Service
from gpuctl.nodes.model import Node, nothing_read
from gpuctl.workflows import nodes as flow
from gpuctl.workflows.recorded_act import Begin, no_begin, recorded

ACT_S = 300.0  # beyond the time for an answer: a reset of eight GPUs takes minutes
POD_S = 120.0
POLL_S = 0.5


@dataclass(frozen=True)
class Deed:
    """An act on a node that has been read. `request`: of the host; None for pods. `against`: reasons not to do it."""

    host: Target
    what: str
    disturbs: str
    against: tuple[str, ...]
    request: Mapping[str, Any] | None = None
    pods: tuple[Object, ...] = ()
    cluster: Cluster | None = None
    timeout_s: float = 60.0


@dataclass(frozen=True)
class Done:
    """Result of an act. `state`: "done", "failed", "busy", "changed", "absent" or "unknown"."""

    state: str
    text: str
    details: Mapping[str, Any]


def read_node(host: Target, timeout_s: float) -> Node:
    """Use of a node now; `GpuctlError` if it cannot be reached."""
    facts = flow.ask_one(host, timeout_s)
    if nothing_read(facts):
        return Node(host.name, why=facts["unread"]["*"])
    return node_use.node(host.name, facts, flow.me())


def restart(host: Target, name: str, context: str, consent: Consent, timeout_s: float) -> Deed:
    """Restart of a service, with the reasons against it."""
    service = services.SERVICES[name]
    if service.pods and not context:
        hint = f"{name} runs in a pod: --context NAME deletes it, and its DaemonSet starts it again"
        return Deed(host, f"restart {name}", service.disturbs, (hint,))
    against = services.against_restart(read_node(host, timeout_s))
    if service.pods:
        return _pods(host, name, service, context, consent, against, timeout_s)
    request = {"act": "restart", "units": list(service.units), "module": service.module, "force": consent.force}
    return _checked(
        Deed(host, f"restart {name}", service.disturbs, _left(against, consent), request, timeout_s=timeout_s)
    )


def reset(host: Target, index: int, timeout_s: float) -> Deed:
    """Reset of a GPU, with the reasons against it; no consent helps against a user of the GPU."""
    node = read_node(host, timeout_s)
    against = tuple(services.against_reset(node, index))
    gpu = next((one for one in node.gpus if one.index == index), None)
    disturbs = "its memory is lost; where NVSwitches connect A100s, all GPUs of the node are reset together"
    if against or gpu is None:
        return Deed(host, f"reset GPU {index}", disturbs, against)
    request = {"act": "reset gpu", "gpu": index, "uuid": gpu.uuid}
    return _checked(Deed(host, f"reset GPU {index} ({gpu.uuid})", disturbs, against, request, timeout_s=timeout_s))


def _left(against: Sequence[str], consent: Consent) -> tuple[str, ...]:
    """Reasons that consent does not lift."""
    return () if consent.force else tuple(against)


def _checked(deed: Deed) -> Deed:
    """The same with what the node itself has against it; `GpuctlError` if that is unknown."""
    if deed.against:
        return deed
    answer = _send(deed, check=True)
    if answer.state == "unknown":
        raise GpuctlError(f"{deed.what} on {deed.host.name}", answer.text, "nothing was done")
    return deed if answer.state == "due" else Deed(deed.host, deed.what, deed.disturbs, (answer.text,), deed.request)


def _send(deed: Deed, *, check: bool, run: str = "", reason: str = "") -> Done:
    about = {"about": deed.what, "actor": current_user(), "reason": f"{reason} ({run})".strip()}
    request = {"action": "act", **(deed.request or {}), "check": check, **about}
    limit_s = deed.timeout_s + (0 if check else ACT_S)
    [result] = run_on_all([deed.host], lambda _: request, forks=1, timeout_s=limit_s, on_result=lambda _: None)
    if result.answer is None:
        return Done("unknown", f"{result.wrong}; {result.hint}".removesuffix("; "), {})
    answer = result.answer["act"]
    return Done(answer["state"], answer["reason"], answer)


def _pods(  # noqa: PLR0913, PLR0917 - one restart
    host: Target, name: str, service: Service, context: str, consent: Consent, against: Sequence[str], timeout_s: float
) -> Deed:
    cluster = kube.connect(context)
    kind = cluster.kind("v1", "Pod")
    matches: tuple[Object, ...] = ()
    reasons = _left(against, consent)
    live = node_drain.find(cluster.find(cluster.kind("v1", "Node"), {}), host.name, host.address)
    if live is None:
        reasons = (*reasons, f"the cluster has no node, or several, of the name {host.name}")
    else:
        pods = cluster.find_everywhere(kind, f"spec.nodeName={live['metadata']['name']}")
        matches = tuple(pod for pod in pods if any(_has(pod, labels) for labels in service.pods))
        if not matches:
            labels = " or ".join(selector(one) for one in service.pods)
            reasons = (*reasons, f"no pod on the node {host.name} has the labels {labels}")
    return Deed(host, f"restart {name}", service.disturbs, reasons, None, matches, cluster, timeout_s)


def _has(pod: Object, labels: Mapping[str, str]) -> bool:
    of_pod = pod["metadata"].get("labels") or {}
    return all(of_pod.get(name) == value for name, value in labels.items())


def carry_out(deed: Deed, command: Sequence[str], consent: Consent, begin: Begin = no_begin) -> tuple[Done, str]:
    """Act, with a record around it; the result, and the name of the run."""
    shown = {"act": deed.what, "reason": consent.reason, "disturbs": deed.disturbs}
    with recorded(command, {deed.host.name: shown}) as entry:
        begin(entry.name)
        if deed.cluster is not None:
            done = _restart_pods(deed.cluster, deed.pods)
        else:
            done = _send(deed, check=False, run=entry.name, reason=consent.reason)
        entry.update(deed.host.name, status=done.state, text=done.text, details=dict(done.details))
        entry.exit_code = exit_code(done)
    return done, entry.name


def exit_code(done: Done) -> int:
    """0 if it is done, 1 if it failed, 3 if it was not done or its end is unknown."""
    return {"done": 0, "failed": 1}.get(done.state, 3)


def _restart_pods(cluster: Cluster, pods: Sequence[Object]) -> Done:
    """Delete pods, and wait for ready successors on their nodes."""
    for pod in pods:
        try:
            cluster.delete_exactly(pod)
        except (NotFound, Conflict) as error:
            return Done("changed", f"{name_of(pod)} was replaced since it was shown: {error.wrong}", {})
    limit = time.monotonic() + POD_S
    while time.monotonic() < limit:
        if all(_successor(cluster, pod) for pod in pods):
            return Done("done", "its successor is ready", {"pods": [pod["metadata"]["name"] for pod in pods]})
        time.sleep(POLL_S)
    return Done(
        "failed", f"no successor is ready after {POD_S:g} s", {"pods": [pod["metadata"]["name"] for pod in pods]}
    )


def _successor(cluster: Cluster, pod: Object) -> bool:
    """True if another pod of its controller is ready on its node."""
    owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
    node = pod["spec"]["nodeName"]
    for one in cluster.find_everywhere(cluster.kind("v1", "Pod"), f"spec.nodeName={node}"):
        meta = one["metadata"]
        same = owners & {owner["uid"] for owner in meta.get("ownerReferences") or ()}
        if (
            same
            and meta["uid"] != pod["metadata"]["uid"]
            and not meta.get("deletionTimestamp")
            and pod_status.is_ready(one)
        ):
            return True
    return False
