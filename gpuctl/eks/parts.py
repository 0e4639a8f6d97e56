"""Objects that exist before a cluster is made: names in use, and parts of an interrupted run that do not fit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok, unknown, unknown_because
from gpuctl.eks.facts import Facts
from gpuctl.eks.model import EksCluster
from gpuctl.eks.objects import SERVICES, Kind, Object, State, object_name

CHECK = "parts"
TAKEN = "it exists, and does not have gpuctl's tags of this cluster"
ANYBODY = "*"  # as the principal of a trust policy
OTHER_NAME = "choose another name for the cluster, or remove it yourself"


def parts(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Objects with names or tags of this cluster that would stop its making, or that it would not go on with."""
    if facts.state is None:
        return []
    if isinstance(facts.state, GpuctlError):
        return [unknown_because(CHECK, cluster.name, facts.state)]
    found = [*_taken(cluster, facts, facts.state), *_trust(facts.state), *_removal(facts.state)]
    message = "AWS has more than one of this part, as of two runs at once"
    hint = "`gpuctl eks destroy` removes both; then make it again"
    found += [fail(CHECK, str(one), message, hint) for one in facts.state.duplicates()]
    exist = [one for one in facts.state.objects if one.ours]
    fresh = "nothing of this cluster exists"
    return or_ok(CHECK, cluster.name, found, f"{len(exist)} objects of it exist: create goes on" if exist else fresh)


def _taken(cluster: EksCluster, facts: Facts, state: State) -> Iterator[Finding]:
    yield from (fail(CHECK, str(one), TAKEN, OTHER_NAME) for one in state.of(Kind.ROLE) if not one.ours)
    if isinstance(facts.templates, GpuctlError):
        yield unknown_because(CHECK, f"{Kind.TEMPLATE}s", facts.templates)
    else:
        yield from (fail(CHECK, str(one), TAKEN, OTHER_NAME) for one in facts.templates if not one.ours)
    groups = {} if isinstance(facts.placement_groups, GpuctlError) else facts.placement_groups
    for group in cluster.node_groups:
        name = object_name(cluster.name, group.name)
        if group.placement == "cluster" and name in groups and state.get(Kind.PLACEMENT, group.name) is None:
            yield fail(CHECK, f"{Kind.PLACEMENT} {name}", TAKEN, OTHER_NAME)


def _trust(state: State) -> Iterator[Finding]:
    """Roles of ours whose trust somebody has changed."""
    for role in state.of(Kind.ROLE):
        service = SERVICES.get(role.part, "")
        trusted = _trusted(role) if role.ours and service else {service}
        if ANYBODY in trusted:
            message = f"its trust policy names anybody ({ANYBODY}), and AWS may not take {service} for one of them"
            yield unknown(CHECK, str(role), message, f"have it trust {service} alone")
        elif service not in trusted:
            message = f"it does not trust {service}: AWS refuses it"
            yield fail(CHECK, str(role), message, "restore its trust policy, or destroy the cluster and make it again")


def _trusted(role: Object) -> set[str]:
    """Services that a role trusts, and ANYBODY."""
    document = role.data.get("AssumeRolePolicyDocument") or {}
    try:
        plain: Any = json.loads(unquote(document)) if isinstance(document, str) else document
    except ValueError:
        return set()
    found = set[str]()
    for statement in _listed(plain.get("Statement") if isinstance(plain, Mapping) else None):
        if isinstance(statement, Mapping) and statement.get("Effect") == "Allow":
            principal = statement.get("Principal")
            services = principal.get("Service") if isinstance(principal, Mapping) else principal
            found |= {str(one) for one in _listed(services)}
    return found


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value] if value else []


def _removal(state: State) -> Iterator[Finding]:
    """A removal that has begun: what is made beside it would be left, and cost."""
    going = removal(state)
    if going:
        message = f"its removal has begun ({named(f'{one} is {one.state}' for one in going)})"
        yield fail(CHECK, state.cluster, message, "run `gpuctl eks destroy` until nothing is left, then make it again")


def removal(state: State) -> list[Object]:
    """Objects of ours that AWS is deleting."""
    kinds = (Kind.CLUSTER, Kind.NAT)
    return [one for one in state.objects if one.ours and one.kind in kinds and one.state.lower() == "deleting"]
