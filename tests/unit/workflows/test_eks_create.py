"""Findings of a plan that count what an interrupted run made, and interfaces of a design."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.workflows import eks_status
from gpuctl.workflows.eks_create import due, is_late
from gpuctl.workflows.eks_status import Living

CHECKS = ("permissions", "name", "quota", "limit", "addresses")
ROLE = Object(Kind.ROLE, "role", "cluster", ours=True)
VPC, CLUSTER, GROUP = (Object(kind, "x", ours=True) for kind in (Kind.VPC, Kind.CLUSTER, Kind.GROUP))


@pytest.mark.parametrize(
    ("objects", "skipped"),
    [
        ([], set()),
        ([ROLE, VPC], {"limit"}),
        ([ROLE, VPC, CLUSTER], {"limit", "name"}),
        ([ROLE, VPC, CLUSTER, GROUP], {"limit", "name", "quota", "addresses"}),
        ([Object(Kind.CLUSTER, "x")], set()),  # of somebody else: its name is taken
    ],
)
def test_what_exists_is_not_counted_again(objects: list[Object], skipped: set[str]) -> None:
    state = State("lab", "us-east-1", objects)
    findings = [Finding(check, "lab", Verdict.FAIL) for check in CHECKS]
    assert {one.check for one in due(findings, state)} == set(CHECKS) - skipped
    unknown = [Finding(check, "lab", Verdict.UNKNOWN) for check in CHECKS]
    assert due(unknown, state) == unknown


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
