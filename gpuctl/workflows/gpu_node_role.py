"""Decisions of the Ansible module gpu_stack: what it asks a host, and what it then sends to the engine.

The module's action plugin visits the host; each function here takes and returns plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Verdict
from gpuctl.gpu_node import desired, nccl_tests, offers, resolution, site
from gpuctl.gpu_node.facts import host_gpu_facts
from gpuctl.gpu_node.knowledge import knowledge
from gpuctl.gpu_node.model import HostGpuFacts, StackPlan, StackRequest
from gpuctl.gpu_node.plan import plan
from gpuctl.workflows.gpu_node_plan import VARIABLE

PARTS = desired.PARTS


class RoleTask(NamedTuple):
    """One task of a role on one host. `parts`: those of `desired.PARTS` that it may change."""

    host: str
    request: StackRequest
    parts: Sequence[str]
    today: date


def task(host: str, stack: Mapping[str, Any], parts: Sequence[str], today: date) -> RoleTask:
    """The task of a role's variables; ValueError with every mistake in them."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        raise ValueError(f"parts must be some of {', '.join(PARTS)}, not {', '.join(unknown) or 'none'}")
    try:
        request = site.read_variables({VARIABLE: stack}, host)
    except InvalidInput as error:
        raise ValueError(f"gpu_stack cannot be used: {error.wrong}") from error
    return RoleTask(host, _restricted(request, parts), parts, today)


def _restricted(request: StackRequest, parts: Sequence[str]) -> StackRequest:
    """The request with these parts only; fabric services depend on the driver, which has their packages."""
    with_driver = {"driver", "fabric"} & set(parts)
    return replace(
        request,
        driver=request.driver if with_driver else None,
        flavour=request.flavour if with_driver else "auto",
        cuda=request.cuda if with_driver else None,
        toolkit=request.toolkit if "toolkit" in parts else None,
        dcgm=request.dcgm if "dcgm" in parts else None,
        efa=request.efa if "efa" in parts else None,
        peer_memory=request.peer_memory if "rdma" in parts else None,
        gdrcopy=request.gdrcopy if "rdma" in parts else None,
        gds=request.gds if "rdma" in parts else None,
        nccl_tests=request.nccl_tests if "nccl_tests" in parts else None,
        after_driver=request.driver is not None and not with_driver,
        after_efa=request.efa is not None and "efa" not in parts,
    )


def facts_request(row: RoleTask) -> dict[str, Any]:
    """The request for the facts of the host."""
    known = knowledge()
    look_up, sources = offers.names_to_look_up(row.request, known), offers.sources(row.request, known)
    tests = nccl_tests.question(row.request)
    return {
        "action": "facts",
        "subjects": "stack",
        "look_up": list(look_up),
        "sources": sources,
        "nccl_tests": tests,
    }


def interrupted(stack: Mapping[str, Any]) -> bool:
    """True if dpkg has to complete its work before anything can be planned."""
    return bool(stack["interrupted"])


def transaction_request(row: RoleTask, stack: Mapping[str, Any]) -> dict[str, Any] | None:
    """The request that resolves the packages; None if nothing is to be installed."""
    question = resolution.question(_planned(row, host_gpu_facts(stack)))
    return None if question is None else {"action": "facts", "subjects": "transaction", **question}


def tune_request(row: RoleTask, stack: Mapping[str, Any], transaction: Mapping[str, Any] | None) -> dict[str, Any]:
    """`profile` and `scope` of the engine's request, and `notes`: warnings of the plan."""
    known, facts = knowledge(), host_gpu_facts(stack)
    made = _planned(row, facts)
    if transaction is not None:
        made = resolution.resolved(made, transaction, facts, known)
    notes = [f"{one.check}: {one.message}" for one in made.findings if one.verdict is Verdict.WARN]
    profile = desired.profile(desired.knobs(made, facts, known, row.parts))
    return {"profile": profile, "scope": desired.KIND, "notes": notes}


def _planned(row: RoleTask, facts: HostGpuFacts) -> StackPlan:
    return plan(row.host, facts, row.request, knowledge(), row.today)
