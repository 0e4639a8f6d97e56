"""Findings on a cluster that exists, its cost, and causes of health issues."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.eks import health, status
from gpuctl.eks.cost import Prices
from gpuctl.eks.facts import Version
from gpuctl.eks.objects import Kind, Object, State

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
VERSIONS = [Version("1.36", date(2027, 8, 2), date(2028, 8, 2))]
PRICES = Prices("us-east-1", date(2026, 7, 20), "test", {"g4dn.xlarge": 0.5})


def cluster(ends: str = "2026-07-01T20:00:00Z", **group: Any) -> State:
    data = {"version": "1.36", "createdAt": NOW - timedelta(hours=10)}
    return State(
        "lab",
        "us-east-1",
        [
            Object(Kind.ROLE, "role", "cluster", ours=True, tags={"gpuctl:expires": ends}),
            Object(Kind.CLUSTER, "lab", "control-plane", "ACTIVE", ours=True, data=data),
            Object(
                Kind.GROUP,
                "gpu",
                "gpu",
                "ACTIVE",
                True,
                {},
                {"version": "1.36", "scalingConfig": {"desiredSize": 1}, **group},
            ),
        ],
    )


def instance(name: str = "i-1", hours: int = 4, **more: Any) -> Object:
    data = {
        "InstanceType": "g4dn.xlarge",
        "State": {"Name": "running"},
        "LaunchTime": NOW - timedelta(hours=hours),
        **more,
    }
    return Object(Kind.INSTANCE, name, tags={"eks:nodegroup-name": "gpu"}, data=data)


def verdicts(state: State, instances: list[Object]) -> dict[str, str]:
    return {one.check: str(one.verdict) for one in status.judge(state, instances, VERSIONS, NOW)}


def test_a_healthy_cluster() -> None:
    assert verdicts(cluster(), [instance()]) == dict.fromkeys(
        ["cluster", "version", "node-group", "nodes", "ttl"], "OK"
    )


def test_late_half_made_and_smaller_than_desired() -> None:
    assert verdicts(cluster("2026-07-01T11:00:00Z"), []) | {"version": ""} == {
        "cluster": "OK",
        "version": "",
        "node-group": "OK",
        "nodes": "WARN",
        "ttl": "FAIL",
    }
    half = State("lab", "us-east-1", cluster().objects[:1])
    assert verdicts(half, []) == {"cluster": "FAIL", "ttl": "OK"}
    assert verdicts(cluster("never"), [instance()])["ttl"] == "WARN"
    assert verdicts(cluster(version="1.34"), [instance()])["version"] == "WARN"


def test_cost_is_that_of_what_runs_and_unknown_without_a_price() -> None:
    rows = status.costs(cluster(), [instance(), instance("i-2", 2)], VERSIONS, PRICES, NOW)
    assert [(one.part, one.usd_hour) for one, _ in rows] == [("control plane", 0.10), ("2 g4dn.xlarge", 1.0)]
    assert [spent for _, spent in rows] == pytest.approx([1.0, 3.0])
    unlisted = status.costs(cluster(), [], GpuctlError("list", "denied"), PRICES, NOW)
    assert [(one.usd_hour, spent) for one, spent in unlisted] == [(None, None)]


@pytest.mark.parametrize(("day", "usd"), [(date(2026, 6, 29), 36 * 0.60 + 66 * 0.10), (date(2026, 1, 1), 102 * 0.60)])
def test_extended_support_costs_from_its_begin_on(day: date, usd: float) -> None:
    old = cluster()
    plane = replace(old.objects[1], data={"version": "1.36", "createdAt": NOW - timedelta(hours=102)})
    (row,) = status.costs(replace(old, objects=[plane]), [], [Version("1.36", day, None)], PRICES, NOW)
    assert (row[0].usd_hour, row[1]) == pytest.approx((0.60, usd))


@pytest.mark.parametrize(
    "other",
    [
        {"InstanceLifecycle": "spot"},
        {"CapacityReservationId": "cr-1"},
        {"Placement": {"Tenancy": "dedicated"}},
        {"Platform": "windows"},
        {"PlatformDetails": "Red Hat Enterprise Linux"},
    ],
)
def test_the_price_of_plain_linux_on_shared_hardware_is_of_nothing_else(other: dict[str, Any]) -> None:
    plain = instance(Placement={"Tenancy": "default"}, PlatformDetails="Linux/UNIX")
    rows = status.costs(cluster(), [plain, instance(**other)], VERSIONS, PRICES, NOW)[1:]
    assert [(one.usd_hour, spent) for one, spent in rows] == [(None, None), (0.5, 2.0)]


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        ("AsgInstanceLaunchFailures", "… InsufficientInstanceCapacity …", health.CAPACITY),
        (
            "AsgInstanceLaunchFailures",
            "You have requested more vCPU capacity than your current vCPU limit",
            health.QUOTA,
        ),
        ("AsgInstanceLaunchFailures", "InsufficientFreeAddressesInSubnet", health.ADDRESSES),
        ("NodeCreationFailure", "Instances failed to join the kubernetes cluster", health.JOIN),
        ("InsufficientFreeAddresses", "", health.ADDRESSES),
        ("SomethingNew", "whatever", ""),
    ],
)
def test_issues_have_the_action_of_their_cause(code: str, message: str, hint: str) -> None:
    issue = health.issues({"health": {"issues": [{"code": code, "message": message}] * 2}})
    assert [health.hint(one) for one in issue] == [hint]


def test_a_degraded_addon_is_a_warning_and_a_failed_group_a_failure() -> None:
    addon = Object(Kind.ADDON, "coredns", state="DEGRADED")
    failed = Object(Kind.GROUP, "gpu", state="CREATE_FAILED")
    state = State("lab", "us-east-1", [cluster().objects[1], addon, failed])
    found = {one.check: one.verdict for one in status.judge(state, [], VERSIONS, NOW)}
    assert (found["addon"], found["node-group"]) == (Verdict.WARN, Verdict.FAIL)
