"""Values of `facts` from the answers of AWS; KeyError or ValueError for an answer that lacks something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.eks.facts import PlacementGroup, Reservation, Type, Version

Answer = Mapping[str, Any]
Answers = Mapping[str, list[Any] | GpuctlError]


def instances(reservations: Sequence[Mapping[str, Any]], *lifecycles: str) -> list[Mapping[str, Any]]:
    """Instances of these lifecycles ("" for on-demand); of all without any."""
    every = [one for group in reservations for one in group.get("Instances") or ()]
    return [one for one in every if not lifecycles or (one.get("InstanceLifecycle") or "") in lifecycles]


def type_of(instance: Mapping[str, Any]) -> str:
    return str(instance.get("InstanceType") or "")


def instance_type(answer: Mapping[str, Any], zones: frozenset[str]) -> Type:
    architectures = answer["ProcessorInfo"]["SupportedArchitectures"]
    architecture = "arm64" if "arm64" in architectures else "x86_64"
    return Type(
        answer["InstanceType"],
        int(answer["VCpuInfo"]["DefaultVCpus"]),
        architecture,
        zones,
        frozenset(answer.get("SupportedUsageClasses") or ()),
        frozenset((answer.get("PlacementGroupInfo") or {}).get("SupportedStrategies") or ()),
        _gpus(answer),
    )


def _gpus(answer: Mapping[str, Any]) -> int | None:
    """NVIDIA GPUs of an instance type; a fraction of one, as of g6f, has the count 0 and counts as its logical ones."""
    rows = (answer.get("GpuInfo") or {}).get("Gpus") or ()
    counts = [
        one.get("Count") or one.get("LogicalGpuCount") for one in rows if one.get("Manufacturer", "NVIDIA") == "NVIDIA"
    ]
    return None if None in counts else sum(int(one) for one in counts if one)


def quotas(rows: list[Any]) -> dict[str, float]:
    return {str(one["QuotaName"]): float(one["Value"]) for one in rows}


def running(instances: Sequence[Mapping[str, Any]], answers: Answers) -> dict[str, int]:
    """vCPUs by type; ValueError if the size of one is not known."""
    total: dict[str, int] = {}
    for instance in instances:
        name = type_of(instance)
        rows = answers.get(f"type {name}", answers.get(f"known {name}", []))
        if isinstance(rows, GpuctlError) or not rows:
            raise ValueError(f"the vCPUs of {name} are not known")
        total[name] = total.get(name, 0) + int(rows[0]["VCpuInfo"]["DefaultVCpus"])
    return total


def unused(reservations: list[Any] | GpuctlError) -> list[Mapping[str, Any]]:
    """One entry for each unused instance of an active on-demand reservation, which counts for the quota."""
    rows = [] if isinstance(reservations, GpuctlError) else reservations
    active = [one for one in rows if one["State"] == "active" and one.get("ReservationType") != "capacity-block"]
    return [one for one in active for _ in range(int(one["AvailableInstanceCount"]))]


def version(answer: Mapping[str, Any]) -> Version:
    ends = (answer.get("endOfStandardSupportDate"), answer.get("endOfExtendedSupportDate"))
    standard, extended = (_day(one) for one in ends)
    return Version(answer["clusterVersion"], standard, extended)


def _day(value: Any) -> date | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC).date()
    return date.fromisoformat(str(value)[:10]) if value else None


def tenancy(rows: Sequence[Answer], vpcs: Sequence[str]) -> str:
    """Tenancy of instances in these VPCs: "default" if all have it; KeyError for a VPC that is not listed."""
    found = {str(one["VpcId"]): str(one["InstanceTenancy"]) for one in rows if one["VpcId"] in vpcs}
    return next((found[name] for name in vpcs if found[name] != "default"), "default")


def reservation(answer: Mapping[str, Any]) -> Reservation:
    return Reservation(
        name=answer["CapacityReservationId"],
        state=answer["State"],
        instance_type=answer["InstanceType"],
        zone_id=answer.get("AvailabilityZoneId") or answer.get("AvailabilityZone") or "",
        available=int(answer["AvailableInstanceCount"]),
        total=int(answer["TotalInstanceCount"]),
        is_block=answer.get("ReservationType") == "capacity-block",
        group=answer.get("PlacementGroupArn") or "",
        start=answer.get("StartDate"),
        end=answer.get("EndDate"),
    )


def placement_group(answer: Mapping[str, Any]) -> PlacementGroup:
    return PlacementGroup(answer["GroupName"], answer.get("Strategy", ""), answer.get("State", ""))
