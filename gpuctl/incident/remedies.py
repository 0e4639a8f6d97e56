"""Remedies by their evidence: the first row that fits is proposed, and none where nothing fits. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.domain.findings import Verdict
from gpuctl.domain.gpu_health import RESET
from gpuctl.incident.cause import bad_nodes, cause, unhealthy
from gpuctl.incident.model import Incident, Step


@dataclass(frozen=True)
class Remedy:
    """A remedy for one node. `options`: of the repair, plain values; empty for a drain alone. `why`: its evidence."""

    name: str
    node: str
    options: Mapping[str, Any]
    why: str


def remedy(incident: Incident) -> Remedy | None:
    """The remedy for the one suspect; None if no node is suspected, or several: gpuctl never guesses among them."""
    suspects = cause(incident).nodes
    if len(suspects) != 1:
        return None
    return next((one for rule in REMEDIES if (one := rule(incident, suspects[0]))), None)


def _reset_gpu(incident: Incident, node: str) -> Remedy | None:
    """Reset a GPU: every FAIL of the audit asks for it, and names the one GPU."""
    failures = unhealthy(incident).get(node, [])
    indices = {match[1] for one in failures if (match := re.match(r"GPU (\d+): ", one.message)) and one.hint == RESET}
    if not failures or len(indices) != 1 or any(one.hint != RESET for one in failures):
        return None
    gpu = int(indices.pop())
    return Remedy(f"reset GPU {gpu}", node, {"act": "reset", "gpu": gpu}, f"the audit: {failures[0].message}")


def _restart_efa(incident: Incident, node: str) -> Remedy | None:
    """Load EFA's driver again: the runs prove the node, and that its ranks lack the network that the others use.

    A slow node whose network is like that of the others may have a bad cable: no driver cures that.
    """
    answer = incident.answer(Step.ISOLATE)
    if answer is None or node not in bad_nodes(incident) or not answer.details.get("efa"):
        return None
    if any(one.check != "adapters" for one in unhealthy(incident).get(node, [])):
        return None  # another fault, which the driver does not explain
    why = next(
        (
            one.message
            for one in answer.findings
            if one.check == "transport" and one.verdict is Verdict.FAIL and one.subject == node
        ),
        "",
    )
    return Remedy("restart EFA's driver", node, {"act": "restart", "service": "efa"}, why) if why else None


def _drain(incident: Incident, node: str) -> Remedy | None:
    """Drain and replace: the node is bad, and no repair of the catalogue fits."""
    return Remedy("drain and replace", node, {}, cause(incident).text)


REMEDIES: tuple[Callable[[Incident, str], Remedy | None], ...] = (_reset_gpu, _restart_efa, _drain)
