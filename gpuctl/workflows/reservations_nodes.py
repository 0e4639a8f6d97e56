"""Hosts of an inventory as nodes of the reservation service: read once in one trip each, then visited over ssh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.core.text import named
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import Target
from gpuctl.hosts.plan import find_inventory, targets
from gpuctl.nodes.model import Facts
from gpuctl.reservations import serve
from gpuctl.reservations.agent import Visit, VisitedNode
from gpuctl.reservations.rules.model import Node, Site
from gpuctl.reservations.stores.sqlite import SqliteStore
from gpuctl.workflows import nodes

FORKS = 32
READ_S = 90.0  # eight GPUs without persistence mode take ten seconds and more
VISIT_S = 60.0  # more than a host needs to end programs
DOING = "serve reservations of an inventory"


@dataclass(frozen=True)
class FleetRequest:
    """`inventory`: name or path. `limit`: pattern as Ansible's; "" for all hosts. `gpu_type`: None by the driver."""

    inventory: str
    limit: str = ""
    gpu_type: str | None = None


def fleet(request: FleetRequest, state: Path, notify: Callable[[str], None]) -> serve.Fleet:
    """Nodes of an inventory. One that does not answer keeps the GPUs it had; `Unreachable` if it was never read.

    `state`: folder of the database. `notify`: receives what the operator has to know about a node.
    """
    hosts = targets(find_inventory(request.inventory), request.limit)
    if not hosts:
        raise InvalidInput(DOING, "no host of the inventory was chosen", "check --inventory and --limit")
    for host in hosts:
        if host.needs_ansible:
            wrong = f"{host.name}: only Ansible can reach it: {host.needs_ansible}"
            raise InvalidInput(DOING, wrong, "the service needs a direct ssh login")
    known = _known(state)
    answers = nodes.ask(hosts, FORKS, READ_S, lambda _: None)
    rows = []
    for host in hosts:
        if (reason := answers.unasked.get(host.name)) is None:
            rows.append(node_of(host, answers.nodes[host.name], request.gpu_type))
            _notify_of_programs(host.name, answers.nodes[host.name], notify)
        elif host.name in known:
            notify(f"{host.name}: {reason}; its GPUs are unknown and given to nobody until it answers")
            rows.append(known[host.name])
        else:
            hint = "its GPUs were never read: repair it, or leave it out with --limit"
            raise Unreachable(DOING, f"{host.name}: {reason}", hint)
    service = serve.service_name(state)
    agents = {
        host.name: VisitedNode(host.name, len(row.allocated), service, visit(host), {})
        for host, row in zip(hosts, rows, strict=True)
    }
    return serve.Fleet(rows, agents)


def visit(host: Target, timeout_s: float = VISIT_S) -> Visit:
    """Carries out acts on a host in one trip each. The answer says whether the act was refused."""

    def ask(request: Mapping[str, Any]) -> Mapping[str, Any]:
        [result] = run_on_all([host], lambda _: request, forks=1, timeout_s=timeout_s, on_result=lambda _: None)
        if result.answer is None:
            raise OSError(result.wrong)
        answer: Mapping[str, Any] = result.answer["act"]
        return answer

    return ask


def node_of(host: Target, facts: Facts, gpu_type: str | None) -> Node:
    """A host as a node by its facts; `GpuctlError` if its GPUs are unknown, `InvalidInput` if they cannot be shared."""
    gpus = facts.get("gpus")
    if not gpus:
        reason = (facts.get("unread") or {}).get("gpus") or "it has no GPU"
        raise GpuctlError(DOING, f"{host.name}: {reason}", "load the driver, or leave the host out with --limit")
    for manager, manages in (("Slurm", facts.get("slurmd")), ("Kubernetes", facts.get("kubelet"))):
        if manages:
            wrong = f"{host.name}: {manager} gives out its GPUs already"
            raise InvalidInput(DOING, wrong, "leave it out with --limit: two masters would give one GPU to two people")
    uuids = {gpu["minor"]: gpu["uuid"] for gpu in gpus if gpu["uuid"]}
    if sorted(minor for minor in uuids if minor is not None) != list(range(len(gpus))):
        wrong = f"{host.name}: the driver does not name the UUID and device file of each of its {len(gpus)} GPUs"
        raise GpuctlError(DOING, wrong, "look at `nvidia-smi -q` there")
    split = [gpu["minor"] for gpu in gpus if gpu["mig"] == "Enabled"]
    if split:
        wrong = f"{host.name}: MIG is enabled on GPU {named(map(str, split))}"
        raise InvalidInput(DOING, wrong, "reservations share whole GPUs: disable MIG, or leave the host out")
    try:
        name = gpu_type.casefold() if gpu_type else serve.type_of({str(gpu["model"]) for gpu in gpus})
    except InvalidInput as error:
        raise InvalidInput(DOING, f"{host.name}: {error.wrong}", error.hint) from error
    return Node(
        host.name,
        name,
        (None,) * len(gpus),
        uuids=tuple(uuids[minor] for minor in range(len(gpus))),
        address="" if host.address in ("", host.name) else host.address,
        port=host.port,
    )


def _known(state: Path) -> Mapping[str, Node]:
    """Nodes of the database, if there is one."""
    path = state / serve.DATABASE
    if not path.exists():
        return {}
    store = SqliteStore(path, Site(), None)
    try:
        return store.load().nodes
    finally:
        store.close()


def _notify_of_programs(name: str, facts: Facts, notify: Callable[[str], None]) -> None:
    if number := len(facts.get("processes") or ()):
        notify(f"{name}: programs that use GPUs already keep them: {number}; `gpuctl nodes` shows whose they are")
