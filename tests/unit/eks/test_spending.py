"""Cost of clusters that exist: sums are lower bounds where a price is not known, and never zero for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.eks import spending
from gpuctl.eks.cost import (
    APPLICATION_BALANCER,
    CLASSIC_BALANCER,
    DISK_GIB,
    NAT_GATEWAY,
    NETWORK_BALANCER,
    PUBLIC_ADDRESS,
    Price,
    Prices,
)
from gpuctl.eks.facts import Version
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.removal import Belongings
from gpuctl.eks.spending import Spending
from gpuctl.workflows import eks_cost

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
END = NOW + timedelta(hours=5)
VERSIONS = [Version("1.36", date(2027, 8, 2), date(2028, 8, 2)), Version("1.33", date(2026, 7, 29), None)]
PRICES = Prices("us-east-1", date(2026, 7, 20), "test", {"g4dn.xlarge": 0.5})
INSTANCE = Object(
    *(Kind.INSTANCE, "i-1"),
    ours=True,
    data={
        "InstanceType": "g4dn.xlarge",
        "State": {"Name": "running"},
        "LaunchTime": NOW - timedelta(hours=4),
    },
)
DISKS = [Object(Kind.VOLUME, f"vol-{number}", data={"Size": 100}) for number in (1, 2)]


def cluster(*around: Object, version: str = "1.36", end: datetime | None = END, owner: str = "") -> Spending:
    data: dict[str, Any] = {"version": version, "createdAt": NOW - timedelta(hours=10)}
    state = State("lab", "us-east-1", [Object(Kind.CLUSTER, "lab", data=data), Object(Kind.GROUP, "gpu")])
    return Spending("lab", "us-east-1", owner, end, spending.parts(state, Belongings(around), VERSIONS, PRICES, NOW))


UNREAD = Spending("far", "eu-west-1", "alice", END, GpuctlError("list", "no permission", "have it allowed"))


def test_a_cluster_with_known_prices_has_a_whole_sum_an_hour_and_a_lower_bound_until_now() -> None:
    whole = spending.total(cluster(INSTANCE), NOW)
    assert (whole.hour, whole.spent, whole.until_end) == pytest.approx((0.6, 3.0, 3.0))
    assert whole.is_whole
    (finding,) = spending.judge([cluster(INSTANCE)], NOW)
    message = "0.60 USD an hour, at least 3.00 until now, 3.00 more until 2026-11-28 17:00 UTC"
    assert (finding.verdict, finding.message) == (Verdict.OK, message)


def test_extended_support_is_counted() -> None:
    assert spending.total(cluster(version="1.33"), NOW).hour == pytest.approx(0.6)


def test_parts_without_a_price_make_a_lower_bound() -> None:
    one = cluster(INSTANCE, *DISKS)
    assert one.known[-1].cost.part == "2 volumes, 200 GiB"
    assert not spending.total(one, NOW).is_whole
    (finding,) = spending.judge([one], NOW)
    assert finding.verdict is Verdict.WARN
    assert finding.message.startswith("at least 0.60 USD")
    assert finding.message.endswith("UNKNOWN: 2 volumes, 200 GiB")


@pytest.mark.parametrize(
    ("end", "verdict", "hint"), [(NOW - timedelta(hours=1), Verdict.FAIL, "eks reap"), (None, Verdict.WARN, "ttl")]
)
def test_what_is_over_or_has_no_end_costs_on(end: datetime | None, verdict: Verdict, hint: str) -> None:
    one = cluster(end=end)
    assert spending.total(one, NOW).until_end is None
    assert spending.by_owner([one, cluster()], NOW)[spending.NO_OWNER].until_end is None
    (finding,) = spending.judge([one], NOW)
    assert (finding.verdict, hint in finding.hint) == (verdict, True)


def test_a_cluster_of_which_nothing_is_left_costs_nothing() -> None:
    nothing = Spending("lab", "us-east-1", "", END, [])
    assert spending.total(nothing, NOW) == spending.Sum(0.0, 0.0, 0.0, is_whole=True)


def test_a_cluster_that_cannot_be_read_is_unknown_and_so_is_the_sum_of_its_owner() -> None:
    assert [one.verdict for one in spending.judge([UNREAD], NOW)] == [Verdict.UNKNOWN]
    sums = spending.by_owner([UNREAD, cluster(owner="alice"), cluster(INSTANCE), cluster(end=None)], NOW)
    assert (sums["alice"].hour, sums["alice"].until_end, sums["alice"].is_whole) == (0.1, None, False)
    none = sums[spending.NO_OWNER]
    assert none.hour == pytest.approx(0.7)
    assert (none.until_end, none.is_whole) == (None, True)


def test_a_volume_that_may_be_of_the_cluster_is_an_unknown_part() -> None:
    around = Belongings(DISKS, unassigned=frozenset({"vol-2"}))
    parts = spending.parts(State("lab", "us-east-1"), around, VERSIONS, PRICES, NOW)
    assert [(one.cost.part, one.cost.usd_hour) for one in parts] == [
        ("1 volume, 100 GiB", None),
        ("1 volume, 100 GiB, perhaps not of it", None),
    ]
    assert "no tag or node" in parts[1].cost.why


def test_an_owner_is_a_tag() -> None:
    assert [spending.owner(tags) for tags in ({"owner": "alice"}, {"Owner": "bob"}, {})] == ["alice", "bob", ""]


@pytest.mark.parametrize("known", [True, False])
def test_a_network_load_balancer_has_a_price_only_if_aws_named_it(known: bool) -> None:
    data = {"Type": "network", "CreatedTime": NOW - timedelta(hours=10)}
    network = Object(Kind.LOAD_BALANCER, "lb-1", tags={"elbv2.k8s.aws/cluster": "lab"}, data=data)
    other = replace(network, name="lb-2", data={"Type": "application"})
    price = {("us-east-1", NETWORK_BALANCER): Price(0.02, date(2026, 11, 20), "AWS")} if known else {}
    prices = replace(PRICES, listed=price)
    parts = spending.parts(State("lab", "us-east-1"), Belongings([network, other]), VERSIONS, prices, NOW)
    named = {one.cost.part: (one.cost.usd_hour, one.spent) for one in parts}
    if known:
        assert named == {
            "1 load balancer": (None, None),
            "1 network load balancer": (0.02, pytest.approx(0.2)),
            "traffic and public addresses of 1 network load balancer": (None, None),
        }
        assert parts[-2].cost.why == "AWS, 2026-11-20, 8 days old"
        whole = spending.total(Spending("lab", "us-east-1", "", END, parts[-2:]), NOW)
        assert (whole.hour, whole.is_whole) == (0.02, False)
    else:
        assert named == {"2 load balancers": (None, None)}


def test_what_costs_by_the_hour_beside_the_nodes_has_a_price_if_aws_named_it() -> None:
    usd = {NAT_GATEWAY: 0.04, PUBLIC_ADDRESS: 0.005, APPLICATION_BALANCER: 0.02, CLASSIC_BALANCER: 0.03, DISK_GIB: 0.1}
    prices = replace(PRICES, listed={("us-east-1", name): Price(one, NOW.date(), "AWS") for name, one in usd.items()})
    start, owned = NOW - timedelta(hours=10), {"kubernetes.io/cluster/lab": "owned"}

    def item(kind: Kind, name: str, **data: Any) -> Object:
        return Object(kind, name, ours=True, tags=owned, data=data)

    objects = [
        item(Kind.NAT, "nat-1", CreateTime=start),
        *[item(Kind.ADDRESS, "eip-1", AssociationId="a"), item(Kind.ADDRESS, "eip-2")],
        item(Kind.ADDRESS, "eip-3", AssociationId="a", PublicIpv4Pool="ipv4pool-ec2-1"),
        item(Kind.LOAD_BALANCER, "alb", Type="application", Scheme="internal", CreatedTime=start),
        *[item(Kind.LOAD_BALANCER, "elb", CreatedTime=start), item(Kind.LOAD_BALANCER, "gateway", Type="gateway")],
        item(Kind.VOLUME, "vol-1", VolumeType="gp3", Size=10, CreateTime=start, Iops=3000, Throughput=125),
        item(Kind.VOLUME, "vol-2", VolumeType="gp3", Size=10, Iops=9000),
        item(Kind.VOLUME, "vol-3", VolumeType="io2", Size=10),
    ]
    parts = spending.parts(State("lab", "us-east-1", objects), Belongings(), VERSIONS, prices, NOW)
    known = {one.cost.part: (one.cost.usd_hour, one.spent) for one in parts if one.cost.usd_hour is not None}
    assert known == {
        "1 NAT gateway": (0.04, pytest.approx(0.4)),
        "1 Elastic IP": (0.005, None),  # AWS does not say since when
        "1 application load balancer": (0.02, pytest.approx(0.2)),
        "1 Classic Load Balancer": (0.03, pytest.approx(0.3)),
        "1 volume, 10 GiB": (1.0, pytest.approx(10)),
    }
    assert [one.cost.part for one in parts if one.cost.usd_hour is None] == [
        *("traffic of 1 NAT gateway", "2 Elastic IPs", "1 load balancer"),
        *("traffic of 1 application load balancer", "traffic and public addresses of 1 Classic Load Balancer"),
        "2 volumes, 20 GiB",
    ]


def test_log_groups_that_are_kept_or_were_not_searched_make_a_lower_bound() -> None:
    kept = Belongings([Object(Kind.LOG_GROUP, "/aws/eks/lab/cluster", data={"storedBytes": 5})])
    unread = Belongings(unread={Kind.LOG_GROUP: GpuctlError("list log groups", "no permission")})
    for around, part in ((kept, "1 log group"), (unread, "log groups")):
        [one] = spending.parts(State("lab", "us-east-1"), around, VERSIONS, PRICES, NOW)
        assert (one.cost.part, one.cost.usd_hour, one.spent) == (part, None, None)
    assert Kind.LOG_GROUP in eks_cost.AROUND


def test_a_load_balancer_without_public_addresses_has_no_cost_of_them() -> None:
    data = {"Type": "network", "Scheme": "internal", "CreatedTime": NOW}
    inside = Object(Kind.LOAD_BALANCER, "lb-1", tags={"elbv2.k8s.aws/cluster": "lab"}, data=data)
    prices = replace(PRICES, listed={("us-east-1", NETWORK_BALANCER): Price(0.02, date(2026, 11, 20), "AWS")})
    parts = spending.parts(State("lab", "us-east-1"), Belongings([inside]), VERSIONS, prices, NOW)
    assert parts[-1].cost.part == "traffic of 1 network load balancer"
