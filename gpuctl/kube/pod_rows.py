"""Rows of a list of pods: status, restarts, GPUs, node, age, and why a pod does not run; the worst come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpuctl.core.text import plural
from gpuctl.domain import kube_nodes
from gpuctl.domain.findings import SEVERITY, Finding, Verdict, fail, ok, overall, unknown, warn, worst_first
from gpuctl.domain.pod_status import conditions
from gpuctl.kube import model
from gpuctl.kube.logs_ai import judge
from gpuctl.kube.logs_ai.model import name_of

FINISHED = ("Succeeded", "Failed")
PHASES = ("Pending", "Running", *FINISHED)
STARTS_S = 60.0  # after which a pod that was placed is late


@dataclass(frozen=True)
class PodRow:
    """A pod in a list. `gpus`: whole GPUs, time slices and MIG devices that it asks for. `node`: "" without one.

    `age_s`: seconds since its start, else its creation; None if the API has neither. `findings`: at least one.
    `finished`: it holds no GPU any more.
    """

    namespace: str
    name: str
    status: str
    restarts: int
    gpus: int
    node: str
    age_s: float | None
    findings: Sequence[Finding]
    finished: bool = False

    @property
    def subject(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def verdict(self) -> Verdict:
        return overall(self.findings)

    @property
    def why(self) -> str:
        """Return the message of the worst finding; "" for a pod without fault."""
        return worst_first(self.findings)[0].message

    def as_dict(self) -> dict[str, Any]:
        """Return its JSON form."""
        return {
            "namespace": self.namespace,
            "pod": self.name,
            "status": self.status,
            "restarts": self.restarts,
            "gpus": self.gpus,
            "node": self.node or None,
            "age_s": self.age_s,
            "verdict": str(self.verdict),
            "why": self.why,
        }


def rows(pods: Iterable[Mapping[str, Any]], now: datetime) -> list[PodRow]:
    """Return the rows of pods as the API has them; the worst first, then those with the most GPUs, then by name."""
    made = [row(pod, now) for pod in pods]
    return sorted(made, key=lambda one: (-SEVERITY.index(one.verdict), -one.gpus, one.namespace, one.name))


def row(pod: Mapping[str, Any], now: datetime) -> PodRow:
    """Return the row of a pod; `GpuctlError` if it is not a pod."""
    short = model.pod(pod)
    return PodRow(
        short.namespace,
        short.name,
        short.status,
        short.restarts,
        kube_nodes.gpus_of_pod(pod),
        short.node,
        _age_s(short.since, now),
        findings(pod, now),
        short.phase in FINISHED,
    )


def findings(pod: Mapping[str, Any], now: datetime) -> list[Finding]:
    """Judge a pod by its status; OK only if it runs or has succeeded, without a fault."""
    name, phase = name_of(pod), (pod.get("status") or {}).get("phase")
    results = judge.of_status(pod)
    if phase == "Failed" and not any(finding.verdict is Verdict.FAIL for finding in results):
        return [*results, fail("phase", name, f"it failed, and its status has no reason; {_events_of(pod)}")]
    if results:
        return results
    if phase == "Pending":
        return [_not_started(pod, now)]
    if phase not in PHASES:
        return [unknown("phase", name, f"its phase is {phase or 'not reported'}: does its node answer?")]
    return [ok("pod", name)]


def _not_started(pod: Mapping[str, Any], now: datetime) -> Finding:
    """Judge a pod that waits on a node without a reason, such as for a volume."""
    name, age_s = name_of(pod), _age_s(model.pod(pod).since, now)
    if age_s is None or not conditions(dict(pod)):
        return unknown("start", name, f"it has not started, and its status does not have the reason; {_events_of(pod)}")
    if age_s < STARTS_S:
        return warn("start", name, f"it is starting, since {age_s:.0f} s")
    return warn("start", name, f"not started for {_span(age_s)}; {_events_of(pod)}")


def _events_of(pod: Mapping[str, Any]) -> str:
    meta = pod["metadata"]
    return f"events: `gpuctl kube pods {meta['name']} --namespace {meta.get('namespace') or 'default'}`"


def _span(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def summary(listed: Sequence[PodRow]) -> str:
    """Count pods, those with a fault, and the GPUs that live pods ask for: with a node, and without."""
    counts = {verdict: sum(one.verdict is verdict for one in listed) for verdict in SEVERITY}
    faults = [f"{counts[verdict]} {verdict}" for verdict in reversed(SEVERITY[1:]) if counts[verdict]]
    live = [one for one in listed if not one.finished]
    placed = sum(one.gpus for one in live if one.node)
    waiting = sum(one.gpus for one in live if not one.node)
    parts = [plural(len(listed), "pod"), *faults, f"{plural(placed, 'GPU')} on nodes"]
    return ", ".join([*parts, *([f"{plural(waiting, 'GPU')} waiting for a node"] if waiting else [])])


def _age_s(since: str, now: datetime) -> float | None:
    try:
        start = datetime.fromisoformat(since)
    except ValueError:
        return None
    return max(0.0, (now - (start if start.tzinfo else start.replace(tzinfo=UTC))).total_seconds())
