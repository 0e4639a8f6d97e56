"""Findings of a forecast: in which subnet the nodes fit, what breaks first, and with which setting they would fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, fail, unknown
from gpuctl.subnets.demand import Cni, Demand, demand
from gpuctl.subnets.forecast import Fit, fit, shared_pools
from gpuctl.subnets.model import Subnet
from gpuctl.subnets.node_type import Layout, NodeType, interfaces

CHECK = "forecast"
_NEW = "add a subnet there: `gpuctl subnets add`"
SIZES = range(27, 15, -1)  # of a new subnet, the smallest first


@dataclass(frozen=True)
class Plan:
    """Nodes to place: `pods` on each have an address of their own. `zones`: ids of the zones that offer the type."""

    node: NodeType
    nodes: int
    pods: int
    layout: Layout
    cni: Cni
    zones: frozenset[str]

    @property
    def demand(self) -> Demand:
        return demand(self.node, interfaces(self.node, self.layout), self.cni, self.pods)

    def __str__(self) -> str:
        return f"{self.nodes} {self.node.name}"


@dataclass(frozen=True)
class Row:
    """A subnet with the nodes that fit there; None in a zone that does not offer the type. `is_unsure`: there may be
    less room, as reservations of it, or of a subnet for the CNI's interfaces, are not known."""

    subnet: Subnet
    fit: Fit | None
    is_unsure: bool


def rows(plan: Plan, subnets: Sequence[Subnet], pools: Sequence[Subnet]) -> list[Row]:
    """Forecast for each subnet alone. `pools`: all subnets that the CNI may use."""
    return [
        Row(one, _fit(plan, [one], pools) if one.zone_id in plan.zones else None, _is_unsure(plan, one, pools))
        for one in subnets
    ]


def _is_unsure(plan: Plan, home: Subnet, pools: Sequence[Subnet]) -> bool:
    shared = shared_pools(home, pools) if plan.cni.subnet_discovery else []
    return any(one.reservations is None for one in (home, *shared))


def _fit(plan: Plan, homes: Sequence[Subnet], pools: Sequence[Subnet]) -> Fit:
    shared = shared_pools(homes[0], pools) if plan.cni.subnet_discovery else []
    return fit(homes, [one for one in shared if one not in homes], plan.demand)


def judge(plan: Plan, table: Sequence[Row], pools: Sequence[Subnet]) -> Finding:
    """The verdict on all nodes: in one subnet, or in several of one zone together."""
    subject, need = str(plan), plan.demand
    if plan.pods > need.most_pods:
        message = (
            f"{plan.node.name} gives at most {need.most_pods} pods an address with these settings, not {plan.pods}"
        )
        hint = "set ENABLE_PREFIX_DELEGATION=true" if not plan.cni.prefix_delegation else "lower --pods"
        return fail(CHECK, subject, message, hint, most_pods=need.most_pods)
    open_rows = [row for row in table if row.fit is not None]
    if not open_rows:
        zones = ", ".join(sorted(plan.zones)) or "no zone of this region"
        return fail(CHECK, subject, f"no subnet lies in a zone that offers {plan.node.name}: {zones} does", _NEW)
    sure = [row for row in open_rows if row.fit and row.fit.certain >= plan.nodes and not row.is_unsure]
    if sure:
        best = max(sure, key=lambda row: row.fit.certain if row.fit else 0)
        return _fits(plan, best)
    together = _together(plan, open_rows, pools)
    if together:
        return Finding(CHECK, subject, Verdict.OK, together, _numbers(plan))
    unsure = [row for row in open_rows if row.fit and row.fit.certain >= plan.nodes]
    if unsure:
        names = named(row.subnet.name for row in unsure)
        message = f"they fit in {names}, unless CIDR reservations take the room: these could not be listed"
        return unknown(CHECK, subject, message, "have ec2:GetSubnetCidrReservations allowed")
    return _short(plan, open_rows, pools)


def _fits(plan: Plan, best: Row) -> Finding:
    count = best.fit.certain if best.fit else 0
    need = plan.demand
    message = f"they fit in {best.subnet.name}, which holds {count} of them{_each(need)}"
    return Finding(CHECK, str(plan), Verdict.OK, message, _numbers(plan, certain_nodes=count))


def _each(need: Demand) -> str:
    prefixes = f" and {need.prefixes} /28" if need.prefixes else ""
    return f"; addresses for each: {need.addresses}{prefixes}"


def _numbers(plan: Plan, **more: int) -> Mapping[str, int]:
    need = plan.demand
    return {"node_addresses": need.addresses, "node_prefixes": need.prefixes, **more}


def _together(plan: Plan, table: Sequence[Row], pools: Sequence[Subnet]) -> str:
    """The message that they fit in several subnets of one zone and VPC; "" if they do not. EFA works between these."""
    places: dict[tuple[str, str], list[Subnet]] = {}
    for row in table:
        if not row.is_unsure:
            places.setdefault((row.subnet.vpc, row.subnet.zone_id), []).append(row.subnet)
    for (_, zone), subnets in places.items():
        found = _fit(plan, subnets, pools) if len(subnets) > 1 else None
        if found and found.certain >= plan.nodes:
            names = named([one.name for one in subnets])
            return f"they fit in no subnet alone, but in {names} of {zone} together, which hold {found.certain} of them"
    return ""


def _short(plan: Plan, table: Sequence[Row], pools: Sequence[Subnet]) -> Finding:
    best = max(table, key=lambda row: _rank(plan, row.fit))
    found = best.fit or Fit(0, 0, None)
    remedy = next(_remedies(plan, best.subnet, pools), "use more subnets of one zone, or fewer nodes")
    numbers = _numbers(plan, certain_nodes=found.certain, possible_nodes=found.possible)
    start = f"{best.subnet.name} has the most room, for {found.certain} of them{_each(plan.demand)}; {_first(found)}"
    if found.possible >= plan.nodes and best.is_unsure:
        message = f"whether they fit in {best.subnet.name} is not known: CIDR reservations could not be listed; {start}"
        return unknown(CHECK, str(plan), message, "have ec2:GetSubnetCidrReservations allowed", **numbers)
    if found.possible >= plan.nodes:
        message = f"they fit in {best.subnet.name} only if EC2 takes single addresses from broken /28s; {start}"
        return Finding(CHECK, str(plan), Verdict.WARN, message, numbers, remedy)
    return fail(CHECK, str(plan), f"they fit in no subnet; {start}", remedy, **numbers)


def _rank(plan: Plan, found: Fit | None) -> tuple[bool, int, int]:
    return (found.possible >= plan.nodes, found.certain, found.possible) if found else (False, 0, 0)


def _first(found: Fit) -> str:
    if found.breaks is None:
        return "it has no IPv4 addresses"
    number = found.certain + 1
    what = f"pods of node {number} get no address" if found.breaks.launches else f"node {number} does not start"
    where = f" in {found.breaks.subnet}"
    return f"{what}: {found.breaks.error}{where}"


def _remedies(plan: Plan, subnet: Subnet, pools: Sequence[Subnet]) -> Iterator[str]:
    """Settings with which the nodes would fit there, then the size of a new subnet."""
    few = replace(plan.cni, warm_ip_target=2, minimum_ip_target=plan.pods, prefix_delegation=False)
    by_prefix = replace(plan.cni, prefix_delegation=True)
    targets = f"WARM_IP_TARGET=2 and MINIMUM_IP_TARGET={plan.pods}"
    lean = replace(plan, layout=Layout.EFA_ONLY)
    changes = [
        (replace(plan, cni=few), targets + (", without prefix delegation" if plan.cni.prefix_delegation else "")),
        (replace(plan, cni=by_prefix), "ENABLE_PREFIX_DELEGATION=true"),
        (lean, "--layout efa-only"),
        (replace(lean, cni=few), f"--layout efa-only, and with {targets}"),
    ]
    for change, words in changes:
        differs = (change.cni, change.layout) != (plan.cni, plan.layout)
        if differs and plan.pods <= change.demand.most_pods:
            found = _fit(change, [subnet], pools)
            if found.certain >= plan.nodes:
                yield f"with {words} they fit in {subnet.name}"
    for length in SIZES:
        block = IPv4Network(f"10.0.0.0/{length}")
        new = replace(subnet, block=block, aws_free=[block.num_addresses], interfaces=(), reservations=(), tags={})
        if fit([new], [], plan.demand).certain >= plan.nodes:
            command = f"gpuctl subnets add --vpc {subnet.vpc} --cidr /{length} --az {subnet.zone_id}"
            yield f"a new subnet of /{length} holds them: `{command}`"
