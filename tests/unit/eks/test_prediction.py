"""Predictions about a cluster: one cause at a time makes one finding, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from ipaddress import IPv4Network
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.eks import read
from gpuctl.eks.cost import (
    DISK_GIB,
    NAT_GATEWAY,
    PUBLIC_ADDRESS,
    Cost,
    Price,
    Prices,
    budget,
    costs,
    price_day,
    priced,
    total,
    uncounted,
)
from gpuctl.eks.facts import Facts, PlacementGroup, Reservation, Type, Version
from gpuctl.eks.limits import ADDRESS_QUOTA, GATEWAY_QUOTA, INTERFACE_QUOTA, VPC_QUOTA
from gpuctl.eks.model import Capacity, EksCluster, NodeGroup
from gpuctl.eks.prediction import actions, predict
from gpuctl.eks.quotas import ON_DEMAND_QUOTAS, STANDARD, quota_name

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
P5 = Type("p5.48xlarge", 192, "x86_64", frozenset({"use1-az6"}))
P_QUOTA = ON_DEMAND_QUOTAS["p"]
GROUP = NodeGroup("gpu", "p5.48xlarge", 0, 4, 2)
CLUSTER = EksCluster("lab", "us-east-1", "1.36", [GROUP], vpc=IPv4Network("10.20.0.0/16"))
GIVEN = replace(CLUSTER, vpc=None, subnets=("subnet-a", "subnet-b"))
EVERYTHING = replace(CLUSTER, node_groups=[replace(GROUP, placement="cluster")])
ALLOWED = dict.fromkeys(actions(EVERYTHING), "allowed")
DENIED = {"iam:PassRole": "explicitDeny"}
REFUSED = GpuctlError("read it", "no permission", "have it allowed")
FACTS = Facts(
    now=NOW,
    cluster="",
    versions=[
        Version("1.36", date(2027, 8, 2), date(2028, 8, 2)),
        Version("1.33", date(2026, 7, 29), date(2027, 7, 29)),
    ],
    types={"p5.48xlarge": P5},
    quotas={P_QUOTA: 1000, ADDRESS_QUOTA: 5, "All P5 Spot Instance Requests": 800},
    vpc_quotas={VPC_QUOTA: 5},
    running={"p5.48xlarge": 192, "m7i.xlarge": 400},
    subnet_zones={"subnet-a": "use1-az6", "subnet-b": "use1-az1"},
    vpcs=1,
    elastic_ips=2,
    simulated=ALLOWED,
    zones=["use1-az1", "use1-az2", "use1-az3", "use1-az6"],
    clusters=1,
    internet_gateways=1,
    roles=20,
)
ACTIVE = Reservation("cr-1", "active", "p5.48xlarge", "use1-az6", 4, 4, is_block=False)
BLOCK = replace(ACTIVE, is_block=True, end=NOW + timedelta(days=2))
RESERVED = replace(GROUP, capacity=Capacity.RESERVATION, reservation="cr-1")
ON_BLOCK = replace(GROUP, capacity=Capacity.BLOCK, reservation="cr-1")

ENDLESS = replace(BLOCK, end=None)
PAST = date(2026, 11, 26)
SOON = date(2026, 12, 20)
AZ3 = frozenset({"use1-az3"})
MANY_GROUPS = {str(number): PlacementGroup(str(number), "spread", "available") for number in range(500)}
G_QUOTAS = {ON_DEMAND_QUOTAS["g"]: 1000, ADDRESS_QUOTA: 5}
IN_GROUP = replace(CLUSTER, node_groups=[replace(GROUP, placement="pg")])


def problems(made: EksCluster = CLUSTER, **facts: Any) -> list[Finding]:
    found = predict(made, replace(FACTS, **facts))
    return [one for one in found if one.verdict is not Verdict.OK]


def of(group: NodeGroup) -> EksCluster:
    return replace(CLUSTER, node_groups=[group])


def test_a_good_cluster_has_no_finding() -> None:
    assert problems() == []
    assert problems(GIVEN) == []
    assert problems(of(RESERVED), reservations={"cr-1": ACTIVE}) == []
    assert problems(of(replace(GROUP, placement="cluster"))) == []
    assert (
        problems(
            of(replace(GROUP, placement="pg")), placement_groups={"pg": PlacementGroup("pg", "cluster", "available")}
        )
        == []
    )


@pytest.mark.parametrize(
    ("cluster", "facts", "check", "verdict", "words"),
    [
        (CLUSTER, {"cluster": "ACTIVE"}, "name", Verdict.FAIL, "a cluster of this name exists"),
        (CLUSTER, {"cluster": REFUSED}, "name", Verdict.UNKNOWN, "no permission"),
        (
            CLUSTER,
            {"simulated": {**ALLOWED, "iam:PassRole": "explicitDeny"}},
            "permissions",
            Verdict.FAIL,
            "denies iam:PassRole",
        ),
        (
            CLUSTER,
            {"simulated": {**ALLOWED, "iam:PassRole": "implicitDeny"}},
            "permissions",
            Verdict.UNKNOWN,
            "for every resource",
        ),
        (CLUSTER, {"simulated": {}}, "permissions", Verdict.UNKNOWN, "no policy allows eks:CreateCluster"),
        (CLUSTER, {"simulated": REFUSED}, "permissions", Verdict.UNKNOWN, "no permission"),
        (
            CLUSTER,
            {"versions": [Version("1.36", PAST, PAST)]},
            "version",
            Verdict.FAIL,
            "extended support ended on",
        ),
        (GIVEN, {"subnet_vpcs": ["vpc-a", "vpc-b"]}, "zones", Verdict.FAIL, "several VPCs: vpc-a, vpc-b"),
        (
            replace(GIVEN, node_groups=[RESERVED]),
            {"reservations": {"cr-1": replace(ACTIVE, zone_id="use1-az2")}},
            "reservation",
            Verdict.FAIL,
            "cr-1 is in use1-az2, and no subnet lies there",
        ),
        (CLUSTER, {"types": {P5.name: Type(P5.name, 0, "", frozenset())}}, "offer", Verdict.FAIL, "no zone of"),
        (CLUSTER, {"vpcs": REFUSED}, "limit", Verdict.UNKNOWN, "no permission"),
        (replace(CLUSTER, version="1.20"), {}, "version", Verdict.FAIL, "EKS does not offer this version"),
        (replace(CLUSTER, version="1.33"), {}, "version", Verdict.WARN, "standard support ended on 2026-07-29"),
        (
            CLUSTER,
            {"versions": [Version("1.36", date(2026, 12, 20), None)]},
            "version",
            Verdict.WARN,
            "ends on 2026-12-20",
        ),
        (CLUSTER, {"versions": [Version("1.36", None, None)]}, "version", Verdict.UNKNOWN, "names no end"),
        (CLUSTER, {"versions": REFUSED}, "version", Verdict.UNKNOWN, "no permission"),
        (GIVEN, {"subnet_zones": {"subnet-a": "use1-az6"}}, "zones", Verdict.FAIL, "no subnet subnet-b"),
        (
            GIVEN,
            {"subnet_zones": {"subnet-a": "use1-az6", "subnet-b": "use1-az3"}},
            "zones",
            Verdict.FAIL,
            "EKS takes no control plane in use1-az3: subnet-b",
        ),
        (
            GIVEN,
            {"subnet_zones": {"subnet-a": "use1-az6", "subnet-b": "use1-az6"}},
            "zones",
            Verdict.FAIL,
            "all subnets lie in use1-az6",
        ),
        (
            CLUSTER,
            {"types": {"p5.48xlarge": replace(P5, zones=frozenset())}},
            "offer",
            Verdict.FAIL,
            "no zone of us-east-1",
        ),
        (
            GIVEN,
            {"types": {"p5.48xlarge": replace(P5, zones=frozenset({"use1-az2"}))}},
            "offer",
            Verdict.FAIL,
            "only use1-az2 offers p5.48xlarge, and no subnet lies there",
        ),
        (of(replace(GROUP, ami="AL2023_ARM_64_NVIDIA")), {}, "image", Verdict.FAIL, "is not for x86_64"),
        (of(replace(GROUP, ami="AL2023_x86_64_STANDARD")), {}, "image", Verdict.WARN, "has no NVIDIA driver"),
        (of(RESERVED), {"reservations": {}}, "reservation", Verdict.FAIL, "no reservation cr-1 here"),
        (of(RESERVED), {"reservations": REFUSED}, "reservation", Verdict.UNKNOWN, "no permission"),
        (
            of(RESERVED),
            {"reservations": {"cr-1": replace(ACTIVE, state="expired")}},
            "reservation",
            Verdict.FAIL,
            "cr-1 is expired",
        ),
        (
            of(RESERVED),
            {"reservations": {"cr-1": replace(ACTIVE, available=1)}},
            "reservation",
            Verdict.FAIL,
            "1 of 4 instances of cr-1 are free, and 2 nodes start",
        ),
        (
            of(RESERVED),
            {"reservations": {"cr-1": replace(ACTIVE, instance_type="p4d.24xlarge")}},
            "reservation",
            Verdict.FAIL,
            "cr-1 is for p4d.24xlarge, not p5.48xlarge",
        ),
        (of(RESERVED), {"reservations": {"cr-1": ENDLESS}}, "reservation", Verdict.FAIL, "cr-1 is a capacity block"),
        (
            of(ON_BLOCK),
            {"reservations": {"cr-1": BLOCK}},
            "reservation",
            Verdict.WARN,
            "EKS takes the nodes away from 11:20 UTC on, EC2 ends them from 11:30 UTC on",
        ),
        (
            of(ON_BLOCK),
            {"reservations": {"cr-1": replace(BLOCK, end=NOW + timedelta(minutes=30))}},
            "reservation",
            Verdict.FAIL,
            "cr-1 ends at 2026-11-28 12:30 UTC",
        ),
        (
            of(RESERVED),
            {"reservations": {"cr-1": replace(ACTIVE, state="scheduled", start=NOW + timedelta(days=1))}},
            "reservation",
            Verdict.WARN,
            "cr-1 starts at 2026-11-29 12:00 UTC",
        ),
        (
            of(RESERVED),
            {"reservations": {"cr-1": replace(ACTIVE, group="arn:aws:ec2:us-east-1:1:placement-group/pg")}},
            "placement",
            Verdict.FAIL,
            "cr-1 was made in the placement group pg, and placement is none",
        ),
        (of(replace(GROUP, placement="pg")), {}, "placement", Verdict.FAIL, "the placement group pg does not exist"),
        (
            of(replace(GROUP, placement="pg")),
            {"placement_groups": REFUSED},
            "placement",
            Verdict.UNKNOWN,
            "no permission",
        ),
        (
            IN_GROUP,
            {"placement_groups": {"pg": PlacementGroup("pg", "cluster", "deleting")}},
            "placement",
            Verdict.FAIL,
            "is deleting",
        ),
        (CLUSTER, {"quotas": {**FACTS.quotas, P_QUOTA: 700}}, "quota", Verdict.FAIL, "768 vCPUs are needed beside 192"),  # type: ignore[dict-item]
        (CLUSTER, {"running": {}, "quotas": {**FACTS.quotas, P_QUOTA: 767}}, "quota", Verdict.FAIL, "the quota is 767"),  # type: ignore[dict-item]
        (CLUSTER, {"running": REFUSED}, "quota", Verdict.UNKNOWN, "what runs now is not known"),
        (
            of(replace(GROUP, capacity=Capacity.SPOT)),
            {"running_spot": {"p5.48xlarge": 192}},
            "quota",
            Verdict.FAIL,
            "768 vCPUs are needed beside 192 that run now, and the quota is 800",
        ),
        (CLUSTER, {"vpcs": 5}, "limit", Verdict.FAIL, "5 of 5 are used, and one more is needed"),
        (CLUSTER, {"elastic_ips": REFUSED}, "limit", Verdict.UNKNOWN, "no permission"),
        (CLUSTER, {"internet_gateways": 5}, "limit", Verdict.FAIL, "5 of 5 are used, and one more is needed"),
        (CLUSTER, {"clusters": 100}, "limit", Verdict.FAIL, "100 of 100 are used"),
        (CLUSTER, {"eks_quotas": {"Clusters": 1}}, "limit", Verdict.FAIL, "1 of 1 are used"),
        (CLUSTER, {"roles": 999}, "limit", Verdict.FAIL, "999 of 1000 are used, and 2 more are needed"),
        (CLUSTER, {"roles": REFUSED}, "limit", Verdict.UNKNOWN, "no permission"),
        (CLUSTER, {"eks_quotas": {"Nodes per managed node group": 3}}, "limit", Verdict.FAIL, "max is 4"),
        (EVERYTHING, {"placement_groups": MANY_GROUPS}, "limit", Verdict.FAIL, "500 of 500 are used"),
        (CLUSTER, {"types": {P5.name: replace(P5, zones=AZ3)}}, "zones", Verdict.FAIL, "reaches none of these"),
        (CLUSTER, {"zones": REFUSED}, "zones", Verdict.UNKNOWN, "no permission"),
        (
            of(replace(GROUP, capacity=Capacity.SPOT)),
            {"types": {P5.name: replace(P5, usages=frozenset({"on-demand"}))}},
            "offer",
            Verdict.FAIL,
            "does not offer p5.48xlarge as spot",
        ),
        (
            EVERYTHING,
            {"types": {P5.name: replace(P5, strategies=frozenset({"spread"}))}},
            "placement",
            Verdict.FAIL,
            "in placement groups with spread, not cluster",
        ),
        (CLUSTER, {"addons": {"more": False}}, "addons", Verdict.FAIL, "no addon of this name"),
        (CLUSTER, {"admins": {"arn": REFUSED}}, "admins", Verdict.UNKNOWN, "no permission"),
        (CLUSTER, {"state": REFUSED}, "parts", Verdict.UNKNOWN, "no permission"),
        (CLUSTER, {"has_efa": True}, "permissions", Verdict.UNKNOWN, "ec2:CreateSecurityGroup"),
        (
            replace(CLUSTER, node_groups=[replace(GROUP, instance_type="g7.2xlarge")]),
            {"types": {"g7.2xlarge": replace(P5, name="g7.2xlarge")}, "quotas": G_QUOTAS},
            "image",
            Verdict.WARN,
            "needs driver 595",
        ),
    ],
)
def test_one_cause_makes_one_finding(
    cluster: EksCluster, facts: dict[str, Any], check: str, verdict: Verdict, words: str
) -> None:
    [finding] = problems(cluster, **facts)
    assert (finding.check, finding.verdict) == (check, verdict)
    assert words in finding.message


def test_quotas_that_cannot_be_read_make_all_that_depends_on_them_unknown() -> None:
    assert [(one.check, one.verdict) for one in problems(quotas=REFUSED)] == [
        ("quota", Verdict.UNKNOWN),
        ("limit", Verdict.UNKNOWN),
    ]
    assert [one.subject for one in problems(vpc_quotas=REFUSED)] == [INTERFACE_QUOTA, VPC_QUOTA, GATEWAY_QUOTA]


def test_groups_that_share_a_quota_are_added_and_blocks_are_not_counted() -> None:
    two = replace(CLUSTER, node_groups=[GROUP, replace(GROUP, name="more")])
    [finding] = problems(two)
    assert finding.numbers["needed_vcpus"] == 2 * 4 * 192
    assert not [one for one in problems(of(ON_BLOCK), reservations={"cr-1": BLOCK}) if one.check == "quota"]


@pytest.mark.parametrize(
    ("name", "capacity", "expected"),
    [
        ("p5.48xlarge", Capacity.ON_DEMAND, "Running On-Demand P instances"),
        ("g4dn.xlarge", Capacity.RESERVATION, "Running On-Demand G and VT instances"),
        ("trn1.32xlarge", Capacity.ON_DEMAND, "Running On-Demand Trn instances"),
        ("t3.large", Capacity.ON_DEMAND, STANDARD),
        ("m7i.xlarge", Capacity.ON_DEMAND, STANDARD),
        ("p5en.48xlarge", Capacity.SPOT, "All P5 Spot Instance Requests"),
        ("p4d.24xlarge", Capacity.SPOT, "All P4, P3 and P2 Spot Instance Requests"),
        ("p6-b200.48xlarge", Capacity.SPOT, ""),
        ("m7i.xlarge", Capacity.SPOT, "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
        ("dl1.24xlarge", Capacity.SPOT, ""),
        ("hpc7a.96xlarge", Capacity.ON_DEMAND, "Running On-Demand HPC instances"),
    ],
)
def test_the_quota_of_a_type(name: str, capacity: Capacity, expected: str) -> None:
    assert quota_name(name, capacity) == expected


PRICES = Prices("us-east-1", date(2026, 7, 20), "a list", {"p5.48xlarge": 55.04})


def parts(cluster: EksCluster, **facts: Any) -> Sequence[Cost]:
    return costs(cluster, replace(FACTS, **facts), PRICES)


def test_costs_are_summed_only_if_all_are_known() -> None:
    assert [part.usd_hour for part in parts(CLUSTER) if not part.is_beside] == [0.10, 110.08]
    assert total(parts(CLUSTER)) == pytest.approx(110.18)
    assert total(parts(replace(CLUSTER, version="1.33"))) == pytest.approx(110.68)
    for unknown in (
        parts(of(replace(GROUP, capacity=Capacity.SPOT))),
        parts(of(replace(GROUP, instance_type="p9.huge"))),
        parts(replace(CLUSTER, region="eu-central-1")),
        parts(CLUSTER, versions=REFUSED),
        parts(GIVEN, tenancy="dedicated"),
        parts(GIVEN, tenancy=REFUSED),
    ):
        assert total(unknown) is None
    assert total(parts(of(ON_BLOCK))) == pytest.approx(0.10)


def test_network_interfaces_of_the_region_have_a_limit() -> None:
    """Four nodes with 33 interfaces, four of the control plane, one of the NAT gateway."""
    facts: dict[str, Any] = {"node_interfaces": {"gpu": 33}, "vpc_quotas": {VPC_QUOTA: 5, INTERFACE_QUOTA: 200}}
    assert problems(interfaces=200 - 4 * 33 - 5, **facts) == []
    [one] = problems(interfaces=200 - 4 * 33 - 4, **facts)
    assert (one.subject, one.verdict, "137 more are needed" in one.message) == (INTERFACE_QUOTA, Verdict.FAIL, True)
    assert problems(interfaces=REFUSED)[0].verdict is Verdict.UNKNOWN


BESIDE = {DISK_GIB: 0.0001, NAT_GATEWAY: 0.045, PUBLIC_ADDRESS: 0.005}
WITH_ALL = replace(PRICES, listed={("us-east-1", name): Price(usd, PRICES.day, "AWS") for name, usd in BESIDE.items()})


def test_disks_and_the_nat_gateway_are_counted_if_their_prices_are_known() -> None:
    rows = {part.part: part.usd_hour for part in costs(CLUSTER, FACTS, WITH_ALL) if part.is_beside}
    assert list(rows.values()) == pytest.approx([2 * 200 * 0.0001, 0.045, 0.005])
    assert total(costs(CLUSTER, FACTS, WITH_ALL)) == pytest.approx(110.18 + 0.04 + 0.05)
    assert uncounted(costs(CLUSTER, FACTS, WITH_ALL)) == []
    assert uncounted(parts(CLUSTER)) == list(rows)
    assert uncounted(parts(GIVEN)) == list(rows)[:1]  # in given subnets


def test_groups_that_share_a_reservation_need_its_room_together() -> None:
    two = replace(CLUSTER, node_groups=[RESERVED, replace(RESERVED, name="more", desired=3, max=4)])
    [first, second] = problems(two, reservations={"cr-1": ACTIVE})
    assert first.message == second.message == "4 of 4 instances of cr-1 are free, and 5 nodes start"


def test_a_spread_group_holds_seven_in_each_zone_of_the_nodes() -> None:
    groups = {"pg": PlacementGroup("pg", "spread", "available")}
    both = {"p5.48xlarge": replace(P5, zones=frozenset(["use1-az1", "use1-az6", "use1-az9"]))}
    one_zone = {"p5.48xlarge": replace(P5, zones=frozenset(["use1-az6"]))}

    def verdicts(types: dict[str, Type], desired: int, most: int) -> list[Verdict]:
        spread = replace(GIVEN, node_groups=[replace(GROUP, placement="pg", desired=desired, max=most)])
        found = problems(spread, placement_groups=groups, quotas={P_QUOTA: 10_000}, types=types)
        return [one.verdict for one in found]

    assert verdicts(both, 14, 14) == []
    assert verdicts(both, 14, 15) == [Verdict.WARN]
    assert verdicts(both, 15, 15) == [Verdict.FAIL]
    assert verdicts(one_zone, 7, 8) == [Verdict.WARN]
    assert verdicts(one_zone, 8, 8) == [Verdict.FAIL]


def test_a_good_spot_group_and_what_is_called_for_what() -> None:
    assert problems(of(replace(GROUP, capacity=Capacity.SPOT))) == []
    assert "ec2:CreateVpc" in actions(CLUSTER)
    assert "ec2:CreateVpc" not in actions(GIVEN)
    assert "eks:CreateAddon" in actions(replace(GIVEN, addons=["vpc-cni"]))


def test_a_price_that_is_not_used_is_not_asked_for_and_its_date_not_shown() -> None:
    groups = [replace(GROUP, capacity=Capacity.SPOT), ON_BLOCK]
    unused = replace(CLUSTER, node_groups=groups)
    assert (priced(unused), price_day(unused, PRICES)) == ([], None)
    mixed = replace(CLUSTER, node_groups=[*groups, RESERVED, replace(GROUP, instance_type="g4dn.xlarge")])
    assert priced(mixed) == ["g4dn.xlarge", "p5.48xlarge"]
    assert price_day(mixed, PRICES) == PRICES.day


def test_the_tenancy_of_given_subnets_is_that_of_their_vpcs() -> None:
    rows = [{"VpcId": name, "InstanceTenancy": kind} for name, kind in (("vpc-a", "default"), ("vpc-b", "dedicated"))]
    assert [read.tenancy(rows, names) for names in (["vpc-a"], ["vpc-a", "vpc-b"])] == ["default", "dedicated"]
    with pytest.raises(KeyError):
        read.tenancy(rows, ["vpc-c"])


def test_a_reservation_costs_its_whole_size() -> None:
    reserved = costs(of(replace(RESERVED, desired=0)), replace(FACTS, reservations={"cr-1": ACTIVE}), PRICES)
    assert reserved[1].usd_hour == pytest.approx(4 * 55.04)
    assert total(costs(of(RESERVED), replace(FACTS, reservations=REFUSED), PRICES)) is None
    both = replace(CLUSTER, node_groups=[RESERVED, replace(RESERVED, name="more")])
    assert total(costs(both, replace(FACTS, reservations={"cr-1": ACTIVE}), PRICES)) == pytest.approx(0.1 + 4 * 55.04)


def test_a_budget() -> None:
    limited = replace(CLUSTER, budget_usd=500, ttl_hours=4)
    assert budget(limited, costs(limited, FACTS, WITH_ALL))[0].verdict is Verdict.OK
    [short] = budget(limited, parts(limited))  # without the prices of disks and the NAT gateway
    assert (short.verdict, "at least 440.72 of 500 USD, without disks" in short.message) == (Verdict.WARN, True)
    [over] = budget(replace(limited, ttl_hours=8), parts(limited))
    assert (over.verdict, over.message) == (Verdict.FAIL, "881.44 USD until its end, and the budget is 500 USD")
    assert budget(replace(limited, ttl_hours=None), parts(limited))[0].verdict is Verdict.UNKNOWN
    assert budget(CLUSTER, parts(CLUSTER)) == []
