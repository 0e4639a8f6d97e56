"""Quotas of running vCPUs against what a cluster needs beside what runs now."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Number, Verdict, fail, unknown, unknown_because
from gpuctl.eks.facts import Facts, Type
from gpuctl.eks.model import Capacity, EksCluster

# Quotas of running vCPUs by the first letters of instance types: names of Service Quotas, as sources differ on some of
# its codes.
ON_DEMAND_QUOTAS: Mapping[str, str] = {
    "trn": "Running On-Demand Trn instances",
    "inf": "Running On-Demand Inf instances",
    "dl": "Running On-Demand DL instances",
    "vt": "Running On-Demand G and VT instances",
    "g": "Running On-Demand G and VT instances",
    "p": "Running On-Demand P instances",
    "x": "Running On-Demand X instances",
    "hpc": "Running On-Demand HPC instances",
    "f": "Running On-Demand F instances",
    "u": "Running On-Demand High Memory instances",
}
STANDARD = "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
SPOT_QUOTAS: Mapping[str, str] = {
    "g": "All G and VT Spot Instance Requests",
    "vt": "All G and VT Spot Instance Requests",
    "p5": "All P5 Spot Instance Requests",
    "p4": "All P4, P3 and P2 Spot Instance Requests",
    "p3": "All P4, P3 and P2 Spot Instance Requests",
    "p2": "All P4, P3 and P2 Spot Instance Requests",
    "trn": "All Trn Spot Instance Requests",
    "inf": "All Inf Spot Instance Requests",
    "x": "All X Spot Instance Requests",
    "f": "All F Spot Instance Requests",
    **dict.fromkeys("acdhimrtz", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
    **dict.fromkeys(("dl", "hpc", "mac"), ""),
}


def quota_name(instance_type: str, capacity: Capacity) -> str:
    """The quota that running instances of a type count for; "" if it is not known, as for spot ones of new types."""
    quotas = SPOT_QUOTAS if capacity is Capacity.SPOT else ON_DEMAND_QUOTAS
    family = instance_type.partition(".")[0]
    prefix = max((one for one in quotas if family.startswith(one)), key=len, default="")
    if capacity is Capacity.SPOT:
        return quotas.get(prefix, "")
    return quotas.get(prefix, STANDARD)


def quota(cluster: EksCluster, facts: Facts) -> list[Finding]:
    """Quotas of running vCPUs, against what runs now and the most nodes that all groups may have.

    Blocks are apart, and a reservation counts for the quota from its start on, used or not.
    """
    needs: dict[str, int] = {}
    findings = []
    for group in cluster.node_groups:
        kind = facts.types.get(group.instance_type)
        if group.capacity in (Capacity.BLOCK, Capacity.RESERVATION) or not isinstance(kind, Type) or not kind.zones:
            continue
        which = quota_name(group.instance_type, group.capacity)
        if which:
            needs[which] = needs.get(which, 0) + kind.vcpus * group.max
        else:
            message = f"no quota is known for {group.capacity} instances of {group.instance_type}"
            findings.append(unknown("quota", group.name, message, "look at Service Quotas, Amazon EC2"))
    return [*findings, *(_quota(which, need, facts) for which, need in needs.items())]


def _quota(which: str, need: int, facts: Facts) -> Finding:
    if isinstance(facts.quotas, GpuctlError):
        return unknown_because("quota", which, facts.quotas)
    limit = facts.quotas.get(which)
    if limit is None:
        return unknown("quota", which, "Service Quotas does not list it", "look at Service Quotas, Amazon EC2")
    running = _running(which, facts)
    numbers: dict[str, Number] = {"limit_vcpus": limit, "needed_vcpus": need, "running_vcpus": running}
    if need + (running or 0) > limit:
        used = f" beside {running} that run now" if running else ""
        message = f"{need} vCPUs are needed{used}, and the quota is {limit:g}"
        hint = f"ask for at least {need + (running or 0)} in Service Quotas; that can take days"
        return fail("quota", which, message, hint, **numbers)
    if running is None:
        message = f"the quota is {limit:g} vCPUs; what runs now is not known ({_of_quota(which, facts)})"
        return unknown("quota", which, message, "have ec2:DescribeInstances allowed", **numbers)
    return Finding("quota", which, Verdict.OK, f"{need} of {limit:g} vCPUs are needed, {running} run now", numbers)


def _of_quota(which: str, facts: Facts) -> Mapping[str, int] | GpuctlError:
    return facts.running_spot if which in SPOT_QUOTAS.values() else facts.running


def _running(which: str, facts: Facts) -> int | None:
    """vCPUs of running instances that count for a quota; None if it is not known."""
    running = _of_quota(which, facts)
    if isinstance(running, GpuctlError):
        return None
    capacity = Capacity.SPOT if which in SPOT_QUOTAS.values() else Capacity.ON_DEMAND
    return sum(vcpus for kind, vcpus in running.items() if quota_name(kind, capacity) == which)
