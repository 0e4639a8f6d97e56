"""Findings of a plan that count what an interrupted run made, and interfaces of a design."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.eks.due import due
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.prediction import endpoint
from gpuctl.workflows import eks_status
from gpuctl.workflows.eks_create import is_late
from gpuctl.workflows.eks_status import Living

LAB = EksCluster("lab", "us-east-1", "1.36", [NodeGroup("x", "p5.48xlarge", 0, 1, 1)])
CHECKS = ("permissions", "name", "quota", "limit", "addresses")
ROLE = Object(Kind.ROLE, "role", "cluster", ours=True)
VPC, CLUSTER, GROUP = (Object(kind, "x", ours=True) for kind in (Kind.VPC, Kind.CLUSTER, Kind.GROUP))


@pytest.mark.parametrize(
    ("objects", "skipped"),
    [
        ([], set()),
        ([ROLE, VPC], set()),
        ([ROLE, VPC, CLUSTER], set()),
        ([ROLE, VPC, CLUSTER, GROUP], {"quota", "addresses"}),
        ([ROLE, VPC, CLUSTER, Object(Kind.GROUP, "y", ours=True)], set()),
    ],
)
def test_what_exists_is_not_counted_again(objects: list[Object], skipped: set[str]) -> None:
    state = State("lab", "us-east-1", objects)
    findings = [Finding(check, "lab", Verdict.FAIL) for check in CHECKS]
    assert {one.check for one in due(findings, state, LAB)} == set(CHECKS) - skipped
    unknown = [Finding(check, "lab", Verdict.UNKNOWN) for check in CHECKS]
    assert due(unknown, state, LAB) == unknown


def test_findings_go_by_group_and_quota_and_stay_for_a_group_that_is_still_to_be_made() -> None:
    more = [NodeGroup("x", "p5.48xlarge", 0, 1, 1), NodeGroup("y", "g6.xlarge", 0, 1, 1)]
    more += [NodeGroup("z", "p4d.24xlarge", 0, 1, 1)]
    quotas = ["Running On-Demand P instances", "Running On-Demand G and VT instances"]
    findings = [Finding("quota", name, Verdict.FAIL) for name in quotas]
    findings += [Finding(check, name, Verdict.FAIL) for check in ("reservation", "addresses") for name in ("x", "y")]

    def kept(*groups: NodeGroup) -> list[tuple[str, str, str]]:
        found = due(findings, State("lab", "us-east-1", [GROUP]), replace(LAB, node_groups=groups))
        return [(one.check, one.subject, str(one.verdict)) for one in found]

    of_y = [("quota", quotas[1], "FAIL"), ("reservation", "y", "FAIL"), ("addresses", "y", "WARN")]
    assert kept(*more[:2]) == of_y
    assert kept(*more) == [("quota", quotas[0], "WARN"), *of_y]  # x runs, and z is of the same quota
    assert kept(more[0]) == []


def test_nodes_that_cannot_reach_the_endpoint_are_refused_or_named() -> None:
    closed = replace(LAB, private_endpoint=False, allowed=[IPv4Network("203.0.113.0/24")], subnets=["a", "b"])
    assert [one.verdict for one in endpoint(closed)] == [Verdict.WARN]
    assert endpoint(replace(closed, private_endpoint=True)) == endpoint(replace(closed, allowed=[])) == []
    with pytest.raises(InvalidInput, match="NAT gateway"):
        endpoint(replace(closed, subnets=(), vpc=IPv4Network("10.0.0.0/16")))


def test_a_cluster_past_its_time_is_not_resumed() -> None:
    late = Object(Kind.ROLE, "role", "cluster", ours=True, tags={"gpuctl:expires": "2026-01-01T00:00:00Z"})
    assert [is_late(State("lab", "us-east-1", [one])) for one in (late, ROLE)] == [True, False]
    assert not is_late(State("lab", "us-east-1"))


def test_only_clusters_past_their_time_are_reaped() -> None:
    now = datetime(2026, 7, 1, tzinfo=UTC)
    ends = [now - timedelta(hours=1), now + timedelta(hours=1), None]
    clusters = [Living(f"lab-{number}", "us-east-1", end) for number, end in enumerate(ends)]
    late, findings = eks_status.preview(clusters, now)
    assert late == clusters[:1]
    assert [one.verdict for one in findings] == [Verdict.WARN, Verdict.OK, Verdict.WARN]
