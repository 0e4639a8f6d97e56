"""Hosts of an inventory as nodes of the reservation service: read once in one trip each, then visited over ssh."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput, Unreachable
from gpuctl.core.text import named
from gpuctl.hosts.fan_out import run_on_all
from gpuctl.hosts.model import Target
from gpuctl.hosts.plan import find_inventory, targets
from gpuctl.nodes.model import Facts
from gpuctl.reservations import serve
from gpuctl.reservations.agent import Unable, Visit, VisitedNode
from gpuctl.reservations.database import Stored
from gpuctl.reservations.rules.model import Node
from gpuctl.reservations.serve import Fleet
from gpuctl.workflows import nodes

FORKS = 32
READ_S = 90.0  # eight GPUs without persistence mode take ten seconds and more
VISIT_S = 60.0  # more than a host needs to end programs
DOING = "serve reservations of an inventory"


@dataclass(frozen=True)
class FleetRequest:
    """`inventory`: name or path. `limit`: pattern as Ansible's; "" for all hosts."""

    inventory: str
    limit: str = ""


def chosen(request: FleetRequest) -> list[Target]:
    """Hosts of the inventory that the service is to share; `InvalidInput` if one of them has no direct login."""
    hosts = targets(find_inventory(request.inventory), request.limit)
    if not hosts:
        raise InvalidInput(DOING, "no host of the inventory was chosen", "check --inventory and --limit")
    for host in hosts:
        if host.needs_ansible:
            wrong = f"{host.name}: only Ansible can reach it: {host.needs_ansible}"
            raise InvalidInput(DOING, wrong, "the service needs a direct ssh login")
    _check_addresses(hosts)
    return hosts


def fleet(hosts: Sequence[Target], gpu_type: str | None, stored: Stored, notify: Callable[[str], None]) -> Fleet:
    """Nodes of an inventory. One that was read before and gives no good answer now keeps the GPUs it had.

    `stored`: what the database knows. `notify`: receives what the operator has to know about a node. `Unreachable` and
    `GpuctlError` for a host that was never read; `InvalidInput` if one host has two names.
    """
    answers = nodes.ask(hosts, FORKS, READ_S, lambda _: None)
    rows, doubts = list[Node](), dict[str, str]()
    for host in hosts:
        known = stored.nodes.get(host.name)
        if (reason := answers.unasked.get(host.name)) is None:
            facts = answers.nodes[host.name]
            try:
                rows.append(node_of(host, facts, gpu_type))
                _notify_of_programs(host.name, facts, notify)
            except GpuctlError as error:
                if known is None:
                    raise
                rows.append(known)
                doubts[host.name] = error.wrong
                notify(f"{error.wrong}; its GPUs are given to nobody until that is repaired")
        elif known is not None:
            notify(f"{host.name}: {reason}; its GPUs are unknown and given to nobody until it answers")
            rows.append(known)
        else:
            hint = "its GPUs were never read: repair it, or leave it out with --limit"
            raise Unreachable(DOING, f"{host.name}: {reason}", hint)
        if len(hosts) > 1 and not host.local and _is_loopback(host.address or host.name):
            notify(f"{host.name}: its address is of this machine alone: people on other hosts cannot log in by it")
    _check_uuids(rows)
    by_name = {host.name: host for host in hosts}
    agents = {
        host.name: VisitedNode(host.name, len(row.allocated), stored.identity, visit(host), {"label": stored.label})
        for host, row in zip(hosts, rows, strict=True)
    }
    return Fleet(rows, agents, doubts, lambda name: _reread(by_name[name], gpu_type))


def _reread(host: Target, gpu_type: str | None) -> Node:
    """Read a host once more; OSError if it gives no answer, else as `node_of`."""
    answers = nodes.ask([host], 1, VISIT_S, lambda _: None)
    if (reason := answers.unasked.get(host.name)) is not None:
        raise OSError(reason)
    return node_of(host, answers.nodes[host.name], gpu_type)


def _check_addresses(hosts: Sequence[Target]) -> None:
    """Two names of one host would give each of its GPUs to two people."""
    names: dict[tuple[str, int], str] = {}
    for host in hosts:
        address = (host.address or host.name).casefold()
        here = host.local or _is_loopback(address)
        key = ("this host" if here else address, 22 if host.local else host.port or 22)
        if (other := names.setdefault(key, host.name)) != host.name:
            wrong = f"{other} and {host.name} are the same host: {key[0]}"
            raise InvalidInput(DOING, wrong, "leave one of the names out with --limit")


def _check_uuids(rows: Sequence[Node]) -> None:
    names: dict[str, str] = {}
    for row in rows:
        for uuid in row.uuids:
            if (other := names.setdefault(uuid, row.name)) != row.name:
                wrong = f"{other} and {row.name} are the same host: both have {uuid}"
                raise InvalidInput(DOING, wrong, "leave one of the names out with --limit")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.casefold() == "localhost"


def visit(host: Target, timeout_s: float = VISIT_S) -> Visit:
    """Carries out acts on a host in one trip each. OSError if it does not answer, `Unable` if it cannot be asked."""

    def ask(request: Mapping[str, Any]) -> Mapping[str, Any]:
        [result] = run_on_all([host], lambda _: request, forks=1, timeout_s=timeout_s, on_result=lambda _: None)
        if result.answer is None:
            raise OSError(result.wrong) if result.unreachable else Unable(result.wrong)
        answer: Mapping[str, Any] = result.answer["act"]
        return answer

    return ask


def node_of(host: Target, facts: Facts, gpu_type: str | None) -> Node:
    """A host as a node by its facts; `GpuctlError` if its GPUs are unknown, `InvalidInput` if they cannot be shared."""
    gpus = facts.get("gpus")
    if not gpus:
        reason = (facts.get("unread") or {}).get("gpus") or "it has no GPU"
        raise GpuctlError(DOING, f"{host.name}: {reason}", "load the driver, or leave the host out with --limit")
    _check_managers(host, facts)
    uuids = {gpu["minor"]: gpu["uuid"] for gpu in gpus if gpu["uuid"]}
    if sorted(minor for minor in uuids if minor is not None) != list(range(len(gpus))):
        wrong = f"{host.name}: the driver does not name the UUID and device file of each of its {len(gpus)} GPUs"
        raise GpuctlError(DOING, wrong, "look at `nvidia-smi -q` there")
    _check_mig(host, gpus)
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


def _check_managers(host: Target, facts: Facts) -> None:
    for manager, manages in (("Slurm", facts.get("slurmd")), ("Kubernetes", facts.get("kubelet"))):
        if manages is None:
            wrong = f"{host.name}: it is not known whether {manager} gives out its GPUs"
            raise GpuctlError(DOING, wrong, "see what `gpuctl nodes` cannot read there")
        if manages:
            wrong = f"{host.name}: {manager} gives out its GPUs already"
            raise InvalidInput(DOING, wrong, "leave it out with --limit: two masters would give one GPU to two people")


def _check_mig(host: Target, gpus: Sequence[Mapping[str, Any]]) -> None:
    unread = [gpu["minor"] for gpu in gpus if gpu["mig"] is None and "mig" in (gpu.get("unread") or {})]
    if unread:
        wrong = f"{host.name}: MIG could not be read on GPU {named(map(str, unread))}"
        raise GpuctlError(DOING, wrong, "look at `nvidia-smi -q` there")
    split = [gpu["minor"] for gpu in gpus if gpu["mig"] == "Enabled"]
    if split:
        wrong = f"{host.name}: MIG is enabled on GPU {named(map(str, split))}"
        raise InvalidInput(DOING, wrong, "reservations share whole GPUs: disable MIG, or leave the host out")


def _notify_of_programs(name: str, facts: Facts, notify: Callable[[str], None]) -> None:
    if number := len(facts.get("processes") or ()):
        notify(f"{name}: programs that use GPUs already keep them: {number}; `gpuctl nodes` shows whose they are")
