"""What a removal takes and leaves, and what it reports at its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.removal import Belongings, Choice, foreigners, obstacles, permissions, remaining, rows

OWNED = {"kubernetes.io/cluster/lab": "owned"}


def ours(kind: Kind, name: str, part: str = "", **data: Any) -> Object:
    return Object(kind, name, part or name, ours=True, data=data)


def state(*objects: Object) -> State:
    return State("lab", "us-east-1", list(objects))


ROLES = [ours(Kind.ROLE, "role-1", "cluster"), ours(Kind.ROLE, "role-2", "node")]
VPC = ours(Kind.VPC, "vpc-1")
CLUSTER = ours(Kind.CLUSTER, "lab")


def test_the_first_role_goes_last_and_node_groups_first() -> None:
    order = [
        one.item.name for one in rows(state(*ROLES, VPC, CLUSTER, ours(Kind.GROUP, "gpu")), Belongings(), Choice())
    ]
    assert order == ["gpu", "lab", "vpc-1", "role-2", "role-1"]


def test_a_role_of_the_same_name_that_is_not_ours_stays() -> None:
    fate = rows(state(Object(Kind.ROLE, "role-1", "cluster")), Belongings(), Choice())[0]
    assert (fate.goes, "no tag" in fate.why) == (False, True)


def test_node_groups_of_others_need_a_confirmation_and_what_eks_makes_does_not() -> None:
    entry, theirs = Object(Kind.ENTRY, "arn"), Object(Kind.GROUP, "theirs")
    eks_group = Object(Kind.SECURITY_GROUP, "sg-1", tags={"aws:eks:cluster-name": "lab"})
    fates = rows(state(CLUSTER, entry, theirs), Belongings([eks_group]), Choice())
    assert [one.item.name for one in fates if one.is_foreign] == ["theirs"]
    assert all(one.goes for one in fates)


MADE = datetime(2026, 11, 20, 8, tzinfo=UTC)
RUNNING = ours(Kind.CLUSTER, "lab", createdAt=MADE, resourcesVpcConfig={"vpcId": "vpc-1"})
TO_DELETE = Choice("delete", "", "delete")


def made_by_controllers(vpc: str, start: datetime) -> list[Object]:
    """Objects with a tag of the cluster: those of a network in `vpc`, and those that store since `start`."""
    kinds = (Kind.LOAD_BALANCER, Kind.TARGET_GROUP, Kind.SECURITY_GROUP)
    network = [Object(kind, f"{kind}-1", tags=OWNED, data={"VpcId": vpc}) for kind in kinds]
    return [
        *network,
        Object(Kind.LOAD_BALANCER, "classic", tags=OWNED, data={"VPCId": vpc}),
        Object(Kind.VOLUME, "vol-1", tags=OWNED, data={"CreateTime": start}),
        Object(Kind.SNAPSHOT, "snap-1", tags=OWNED, data={"StartTime": start}),
    ]


@pytest.mark.parametrize("known", [RUNNING, replace(RUNNING, ours=False), None])
def test_what_controllers_of_our_cluster_made_goes_with_it_and_else_needs_a_confirmation(known: Object | None) -> None:
    around = Belongings(made_by_controllers("vpc-1", MADE + timedelta(hours=1)))
    fates = list(rows(state(*ROLES, *([known] if known else [])), around, TO_DELETE))
    fates = [row for row in fates if row.item.tags == OWNED]
    assert all(row.goes for row in fates)
    assert [row.is_foreign for row in fates] == [known is not RUNNING] * 6


def test_what_an_earlier_cluster_of_the_name_or_one_in_another_vpc_left_needs_a_confirmation() -> None:
    around = Belongings(made_by_controllers("vpc-9", MADE - timedelta(days=30)))
    fates = [row for row in rows(state(*ROLES, RUNNING), around, TO_DELETE) if row.item.tags == OWNED]
    assert [(row.goes, row.is_foreign) for row in fates] == [(True, True)] * 6
    timeless = Object(Kind.VOLUME, "vol-1", tags=OWNED)
    assert rows(state(RUNNING), Belongings([timeless]), TO_DELETE)[-1].is_foreign


def test_what_controllers_made_in_our_vpc_goes_after_an_interruption_without_a_confirmation() -> None:
    around = Belongings(made_by_controllers("vpc-1", MADE))
    assert [row.item.name for row in rows(state(*ROLES, VPC), around, TO_DELETE) if row.is_foreign] == [
        *("vol-1", "snap-1"),
    ]


@pytest.mark.parametrize("tags", [{"kubernetes.io/cluster/lab": "shared"}, {"elbv2.k8s.aws/cluster": "other"}, {}])
def test_a_load_balancer_of_another_cluster_stays(tags: dict[str, str]) -> None:
    fate = rows(state(CLUSTER), Belongings([Object(Kind.LOAD_BALANCER, "lb", tags=tags)]), Choice())[-1]
    assert not fate.goes


def test_only_interfaces_with_every_sign_of_a_leak_go() -> None:
    interfaces = [Object(Kind.INTERFACE, "eni-1"), Object(Kind.INTERFACE, "eni-2")]
    fates = rows(state(CLUSTER), Belongings(interfaces, {"eni-2": "Lambda train"}, frozenset({"eni-1"})), Choice())
    assert {one.item.name: one.goes for one in fates} == {"lab": True, "eni-1": True, "eni-2": False}


def test_protection_and_volumes_are_obstacles_until_a_choice_is_made() -> None:
    disk = Object(Kind.VOLUME, "vol-1", tags=OWNED, data={"Size": 100})
    protected = state(ours(Kind.CLUSTER, "lab", deletionProtection=True))
    checks = [one.check for one in obstacles(protected, Belongings([disk]), Choice())]
    assert checks == ["protection", "volumes"]
    assert obstacles(state(CLUSTER), Belongings([disk]), Choice("keep")) == []
    assert [one.goes for one in rows(state(), Belongings([disk]), Choice("delete"))] == [True]


@pytest.mark.parametrize(
    ("choice", "begins"),
    [
        *[(Choice("delete"), False), (Choice("delete", "", "delete"), False)],
        *[(Choice("delete", "", "keep"), True), (Choice("keep"), True)],
    ],
)
def test_volumes_do_not_go_while_their_snapshots_are_unknown(choice: Choice, begins: bool) -> None:
    disk = Object(Kind.VOLUME, "vol-1", tags=OWNED)
    around = Belongings([disk], unread={Kind.SNAPSHOT: GpuctlError("list snapshots", "throttled")})
    assert [one.check for one in obstacles(state(CLUSTER), around, choice)] == ["snapshots"] * (not begins)


@pytest.mark.parametrize(
    ("owner", "keeps"),
    [
        *[("node i-1", False), ("CNI i-1", False), ("EKS control plane lab", False), ("NAT nat-1", False)],
        *[("EKS control plane other", True), ("Lambda train", True), ("EFS fs-1", True), ("instance i-9", True)],
    ],
)
def test_interfaces_of_others_keep_our_vpc(owner: str, keeps: bool) -> None:
    around = Belongings([Object(Kind.INTERFACE, "eni-1")], {"eni-1": owner})
    assert bool(foreigners(state(VPC), around)) is keeps
    assert foreigners(state(CLUSTER), around) == []  # in given subnets it keeps nothing


@pytest.mark.parametrize(
    ("logs", "goes", "verdict"), [("", False, "WARN"), ("keep", False, "WARN"), ("delete", True, "FAIL")]
)
def test_a_log_group_goes_by_choice_and_the_last_search_counts_it(logs: str, goes: bool, verdict: str) -> None:
    around = Belongings([Object(Kind.LOG_GROUP, "/aws/eks/lab/cluster", data={"storedBytes": 3 * 2**20})])
    fate = rows(state(CLUSTER), around, Choice(logs=logs))[-1]
    assert (fate.goes, fate.is_foreign) == (goes, False)
    assert goes or "3.0 MiB stored, cost UNKNOWN" in fate.why
    finding = next(one for one in remaining(state(), around, Choice(logs=logs)) if one.subject.startswith("/aws"))
    assert str(finding.verdict) == verdict


def test_what_is_left_fails_and_what_costs_is_named_as_such() -> None:
    left = state(ROLES[0], ours(Kind.NAT, "nat-1"), ours(Kind.SECURITY_GROUP, "sg-1"))
    disk = Object(Kind.VOLUME, "vol-1", tags=OWNED)
    found = {one.subject: one for one in remaining(left, Belongings([disk]), Choice("keep"))}
    assert {name: one.verdict for name, one in found.items()} == {
        "nat-1": Verdict.FAIL,
        "sg-1": Verdict.FAIL,
        "vol-1": Verdict.WARN,
    }
    assert [name for name, one in found.items() if "costs money" in one.message] == ["nat-1", "vol-1"]
    assert [one.verdict for one in remaining(state(ROLES[0]), Belongings(), Choice())] == [Verdict.OK]


def test_only_rules_that_name_groups_are_revoked() -> None:
    rules = [
        {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-2", "UserId": "1"}], "IpRanges": []},
        {
            "IpProtocol": "tcp",
            "FromPort": 22,
            "ToPort": 22,
            "UserIdGroupPairs": [],
            "IpRanges": [{"CidrIp": "10.0.0.0/8"}],
        },
    ]
    assert permissions(rules) == [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-2"}]}]
