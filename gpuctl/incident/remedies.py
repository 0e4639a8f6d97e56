"""Remedies by their evidence, with the command of each: the first row that fits is proposed. No I/O."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from gpuctl.domain.findings import Verdict
from gpuctl.domain.gpu_health import RESET
from gpuctl.incident.cause import bad_nodes, cause, failures, unhealthy
from gpuctl.incident.model import Incident, IncidentRequest, Step


class Kind(StrEnum):
    """Kind of a remedy; all but DRAIN are repairs."""

    RESET = "reset"
    RESTART = "restart"
    DRAIN = "drain"


@dataclass(frozen=True)
class Remedy:
    """A remedy for one node. `command`: to run by hand, "" if gpuctl has none; `why`: its evidence.

    `kind`: RESET, RESTART or DRAIN. `gpu`: index of the GPU of a reset.
    """

    kind: Kind
    name: str
    node: str
    command: str
    why: str
    gpu: int = -1


def remedy(incident: Incident) -> Remedy | None:
    """The remedy for the one suspect; None if no node is suspected, or several: gpuctl never guesses among them."""
    suspects = cause(incident).nodes
    if len(suspects) != 1:
        return None
    return next((one for rule in REMEDIES if (one := rule(incident, suspects[0]))), None)


def _reset_gpu(incident: Incident, node: str) -> Remedy | None:
    """Reset a GPU: every FAIL of the audit asks for it, and names the one GPU.

    A setting that waits for a reset is no fault of the GPU, and no reset cures the network of a node.
    """
    rows = unhealthy(incident, node)
    indices = {match[1] for one in rows if (match := re.match(r"GPU (\d+): ", one.message))}
    if len(indices) != 1 or any(one.hint != RESET for one in failures(incident).get(node, [])):
        return None
    if node in bad_nodes(incident) and _lacks_network(incident, node):
        return None
    gpu = indices.pop()
    command = ["gpuctl", "nodes", "reset", node, "--gpu", gpu, *_inventory(incident.request)]
    why = f"the audit: {rows[0].message}"
    return Remedy(Kind.RESET, f"reset GPU {gpu}", node, shlex.join(command), why, int(gpu))


def _restart_efa(incident: Incident, node: str) -> Remedy | None:
    """Load EFA's driver again: the runs prove the node, and that its ranks lack the network that the others use.

    A slow node whose network is like that of the others may have a bad cable: no driver cures that.
    """
    answer = incident.answer(Step.ISOLATE)
    if answer is None or node not in bad_nodes(incident) or not answer.details.get("efa"):
        return None
    if any(one.check != "adapters" for one in failures(incident).get(node, [])):
        return None  # another fault, which the driver does not explain
    why = _lacks_network(incident, node)
    command = shlex.join(["gpuctl", "nodes", "restart", node, "efa", *_inventory(incident.request)])
    return Remedy(Kind.RESTART, "restart EFA's driver", node, command, why) if why else None


def _lacks_network(incident: Incident, node: str) -> str:
    """FAIL of the isolation that the node's ranks lack the network of the others; "" without one."""
    answer = incident.answer(Step.ISOLATE)
    rows = [one for one in answer.findings if one.subject == node] if answer else []
    return next((one.message for one in rows if one.check == "transport" and one.verdict is Verdict.FAIL), "")


def drain(incident: Incident, node: str) -> Remedy:
    """Drain and replace: the node is bad, and no repair of the catalogue fits.

    `gpuctl audit` drains only nodes that it fails; others are drained in their scheduler.
    """
    request, command = incident.request, ""
    reason = f"incident {incident.name}"
    if failures(incident).get(node):
        at = ["--slurm", "--nodes", node] if request.slurm else [*_inventory(request), "--limit", node]
        at += ["--context", request.context] if request.context else []
        command = shlex.join(["gpuctl", "audit", *at, "--act", "drain"])
    elif request.slurm:
        command = shlex.join(["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"])
    return Remedy(Kind.DRAIN, "drain and replace", node, command, cause(incident).text)


def undrain_command(request: IncidentRequest, node: str) -> str:
    """Command that takes a drain back."""
    context = ["--context", request.context] if request.context else []
    return shlex.join(["gpuctl", "nodes", "undrain", node, *_inventory(request), *context])


def _inventory(request: IncidentRequest) -> list[str]:
    """Inventory of the nodes; with Slurm the user has to name one, as resets and restarts log in to hosts."""
    if request.slurm:
        return ["--inventory", "INVENTORY"]
    return ["--inventory", request.inventory] if request.inventory else []


REMEDIES: tuple[Callable[[Incident, str], Remedy | None], ...] = (_reset_gpu, _restart_efa, drain)
