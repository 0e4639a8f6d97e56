"""Rows of a list of pods: status, restarts, GPUs, node, age, and why a pod does not run; the worst come first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpuctl.core.text import plural
from gpuctl.domain import kube_nodes
from gpuctl.domain.findings import SEVERITY, Finding, Verdict, ok, overall, unknown, worst_first
from gpuctl.kube import model
from gpuctl.kube.logs_ai import judge
from gpuctl.kube.logs_ai.model import name_of

FINISHED = ("Succeeded", "Failed")
PHASES = ("Pending", "Running", *FINISHED)


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
        findings(pod),
        short.phase in FINISHED,
    )


def findings(pod: Mapping[str, Any]) -> list[Finding]:
    """Judge a pod by its status; OK without a fault, UNKNOWN in a phase that has no meaning here."""
    name, phase = name_of(pod), (pod.get("status") or {}).get("phase")
    results = judge.of_status(pod)
    if not results and phase not in PHASES:
        return [unknown("phase", name, f"its phase is {phase or 'not reported'}: does its node answer?")]
    return results or [ok("pod", name)]


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
