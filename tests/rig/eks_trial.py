"""python -m tests.rig.eks_trial: what the plan predicts against what happens, for injected causes and for good plans.

Each row changes the account of eks_refusing_account.py, plans a cluster, and then makes it against the same account,
although the plan has a FAIL. The table shows the finding, and AWS's refusal: an error or a health issue. Some causes
reach no request that AWS would refuse, as gpuctl's own making, or the controller of load balancers, stops before: those
rows say "stopped by", and do not count as AWS's refusals.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding
from gpuctl.edges.aws import Aws
from gpuctl.eks import cluster_file, create
from gpuctl.eks.wait import Waiter
from gpuctl.workflows import eks_create, eks_plan
from tests.rig.aws_endpoint import LOGIN
from tests.rig.eks_endpoint import REGION, backend, eks_endpoint
from tests.rig.eks_refusing_account import RefusingAccount, client_of

NOW = datetime.now(UTC)


@dataclass
class World:
    """An account with two VPCs: subnets that are public, one in each zone, and private ones behind NAT gateways."""

    url: str
    account: RefusingAccount
    aws: Aws
    public: dict[str, str] = field(default_factory=dict)  # zone letter -> subnet
    private: dict[str, str] = field(default_factory=dict)

    @property
    def ec2(self) -> Any:
        return client_of(self.url)

    def vpc(self, block: str) -> str:
        """A VPC with DNS."""
        vpc = self.ec2.create_vpc(CidrBlock=block)["Vpc"]["VpcId"]
        self.ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
        dns = [{"Key": "domain-name-servers", "Values": ["AmazonProvidedDNS"]}]
        options = self.ec2.create_dhcp_options(DhcpConfigurations=dns)["DhcpOptions"]["DhcpOptionsId"]
        self.ec2.associate_dhcp_options(DhcpOptionsId=options, VpcId=vpc)
        return str(vpc)

    def subnet(self, vpc: str, block: str, letter: str, *, public: bool = False) -> str:
        zone = f"{REGION}{letter}"
        made = self.ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        if public:
            self.ec2.modify_subnet_attribute(SubnetId=made, MapPublicIpOnLaunch={"Value": True})
        return str(made)

    def internet(self, vpc: str) -> str:
        """An internet gateway, and the default route of the main table."""
        gateway = self.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        self.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        (table,) = self.ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
        way = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": gateway}
        self.ec2.create_route(RouteTableId=table["RouteTableId"], **way)
        return str(gateway)

    def nat(self, vpc: str, public: str, private: str) -> str:
        """A NAT gateway in one subnet, and the default route of another that leads to it."""
        address = self.ec2.allocate_address(Domain="vpc")["AllocationId"]
        nat = self.ec2.create_nat_gateway(SubnetId=public, AllocationId=address, ClientToken=public)["NatGateway"]
        table = self.ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        way = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": nat["NatGatewayId"]}
        self.ec2.create_route(RouteTableId=table, **way)
        self.ec2.associate_route_table(RouteTableId=table, SubnetId=private)
        return str(nat["NatGatewayId"])

    def small(self, block: str, *subnets: str) -> list[str]:
        """Ids of public subnets with these blocks in a VPC of their own, in zones a, b …"""
        vpc = self.vpc(block)
        self.internet(vpc)
        return [self.subnet(vpc, one, letter, public=True) for one, letter in zip(subnets, "abcdef", strict=False)]

    def reserve(self, name: str = "cr-0a1b2c3d", kind: str = "p4d.24xlarge", count: int = 2, **changed: Any) -> None:
        """A capacity reservation, on demand and active in use1-az6 unless changed."""
        members = {
            "capacityReservationId": name,
            "instanceType": kind,
            "instancePlatform": "Linux/UNIX",
            "availabilityZoneId": "use1-az6",
            "availabilityZone": "us-east-1a",
            "totalInstanceCount": count,
            "availableInstanceCount": count,
            "state": "active",
            "reservationType": "default",
            "tenancy": "default",
        }
        self.account.reservations.append({**members, **changed})

    def block(self, name: str = "cr-0a1b2c3d", kind: str = "p5.48xlarge", count: int = 2, **changed: Any) -> None:
        """A capacity block that runs for three more days, unless changed."""
        ends = {"startDate": NOW - timedelta(days=1), "endDate": NOW + timedelta(days=3)}
        self.reserve(name, kind, count, **{"reservationType": "capacity-block", **ends, **changed})

    def endpoints(self, subnet: str, *services: str) -> None:
        """Endpoints of AWS's services in the VPC of a subnet."""
        (row,) = self.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]
        for service in services:
            gateway = service == "s3"
            tables = self.ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [row["VpcId"]]}])
            names = [one["RouteTableId"] for one in tables["RouteTables"]]
            more: dict[str, Any] = {"RouteTableIds": names} if gateway else {"SubnetIds": [subnet]}
            more |= {"VpcEndpointType": "Gateway" if gateway else "Interface", "PrivateDnsEnabled": not gateway}
            self.ec2.create_vpc_endpoint(VpcId=row["VpcId"], ServiceName=f"com.amazonaws.{REGION}.{service}", **more)


def text(world: World, *groups: dict[str, Any], zones: str = "ab", **more: Any) -> str:
    """A cluster file: public subnets in these zones, or what `more` names."""
    if "subnets" not in more and "vpc" not in more:
        more["subnets"] = [world.public[letter] for letter in zones]
    plain = {"name": "lab", "region": REGION, "version": "1.36", "node_groups": list(groups) or [group()], **more}
    return json.dumps({key: value for key, value in plain.items() if value is not None})


def group(kind: str = "g4dn.xlarge", count: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": "gpu", "instance_type": kind, "min": 0, "max": count, "desired": count, **more}


def efa(world: World, kind: str = "p4d.24xlarge", count: int = 2, zones: str = "abc", **more: Any) -> str:
    """A cluster file: nodes with EFA in private subnets."""
    return text(world, group(kind, count, **more), subnets=[world.private[letter] for letter in zones])


Inject = Callable[[World], str]


@dataclass(frozen=True)
class Cause:
    """A cause. `happens`: part of the refusal. `beside`: checks that find something, too. `refused_by`: AWS, by an
    error or a health issue; or what stops before AWS is asked."""

    name: str
    check: str
    subject: str
    inject: Inject
    happens: str
    verdict: str = "FAIL"
    beside: Sequence[str] = ()
    refused_by: str = "AWS"
    later: Callable[[World, str], str] | None = None  # what happens once the cluster is there


@dataclass(frozen=True)
class Outcome:
    """Findings of the plan that are not OK, and what happened: "" if everything came up. `refusals`: AWS's answers."""

    predicted: Sequence[Finding]
    happened: str
    refusals: Sequence[str] = ()


@contextmanager
def world() -> Iterator[World]:
    """The account, with its VPCs; the environment leads to it."""
    account = RefusingAccount()
    with eks_endpoint(account) as (url, _), pytest.MonkeyPatch.context() as patch:
        for name, value in {**LOGIN, "AWS_ENDPOINT_URL": url, "AWS_MAX_ATTEMPTS": "1"}.items():
            patch.setenv(name, value)
        account.url = url
        made = World(url, account, Aws(REGION))
        backend("iam").create_role("Admin", "{}", "/", None, "", [], "3600")
        vpc = made.vpc("10.0.0.0/16")
        made.internet(vpc)
        for number, letter in enumerate("abcdef"):
            made.public[letter] = made.subnet(vpc, f"10.0.{number * 16}.0/20", letter, public=True)
        closed = made.vpc("10.1.0.0/16")
        made.internet(closed)
        for number, letter in enumerate("abc"):
            outer = made.subnet(closed, f"10.1.{200 + number}.0/24", letter, public=True)
            made.private[letter] = made.subnet(closed, f"10.1.{number * 32}.0/19", letter)
            made.nat(closed, outer, made.private[letter])
        yield made


@contextmanager
def restored(made: World) -> Iterator[None]:
    """Objects and state of the account are as before when it ends."""
    backends = [backend(service) for service in ("ec2", "eks", "iam")]
    kept = [
        (target, name, _copy(value))
        for target in (*backends, made.account)
        for name, value in vars(target).items()
        if isinstance(value, dict | list | set | int)
    ]
    try:
        yield
    finally:
        for target, name, value in kept:
            now = getattr(target, name)
            if isinstance(now, dict):
                now.clear()
                now.update(value)
            elif isinstance(now, list):
                now[:] = value
            elif isinstance(now, set):
                now.clear()
                now |= value
            else:
                setattr(target, name, value)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: one.copy() if isinstance(one, dict) else one for key, one in value.items()}
    return value.copy() if isinstance(value, list | set) else value


def outcome(made: World, plain: str, later: Callable[[World, str], str] | None = None) -> Outcome:
    """Plan a cluster, and make it whatever the plan predicts."""
    cluster = cluster_file.check(plain, "read the cluster file")
    planned = eks_plan.plan(made.aws, cluster)
    made.account.refusals.clear()  # of what was only asked
    bad = [one for one in planned.findings if one.verdict != "OK"]
    clock = iter(range(0, 10**9, 10))
    waiter = Waiter(lambda _: None, lambda _: None, lambda: float(next(clock)))
    try:
        findings = create.create(made.aws, eks_create.design(planned), waiter)  # the account has no Kubernetes
    except GpuctlError as error:
        return Outcome(bad, str(error), tuple(made.account.refusals))
    wrong = [f"{one.subject}: {one.message}" for one in findings if one.verdict in ("FAIL", "WARN")]
    happened = "; ".join(wrong) or (later(made, plain) if later else "")
    return Outcome(bad, happened, tuple(made.account.refusals))


def misses(cause: Cause, made: Outcome) -> list[str]:
    """Differences between a cause, what was predicted and what happened; none if both are the cause."""
    found = []
    expected = [one for one in made.predicted if one.check == cause.check and fnmatchcase(one.subject, cause.subject)]
    if not any(str(one.verdict) == cause.verdict for one in expected):
        found.append(f"not predicted: {[(one.check, one.subject, str(one.verdict)) for one in made.predicted]}")
    others = {one.check for one in made.predicted if one not in expected} - set(cause.beside)
    if others:
        found.append(f"predicted beside it: {sorted(others)}")
    if cause.happens not in made.happened:
        found.append(f"what happened is {made.happened or 'nothing'}")
    if (cause.refused_by == "AWS") is not any(cause.happens in text for text in made.refusals):
        found.append(f"it is not {cause.refused_by} that refuses")
    return found


def main() -> int:
    """Print the tables; exit code 1 if a row is not as it is to be."""
    from tests.rig.eks_causes import CAUSES, GOOD

    wrong = 0
    sys.stdout.write("| cause | predicted | happened |\n|---|---|---|\n")
    with world() as account:
        for cause in CAUSES:
            with restored(account):
                made = outcome(account, cause.inject(account), cause.later)
            bad = misses(cause, made)
            wrong += bool(bad)
            said = next((one for one in made.predicted if one.check == cause.check), None)
            predicted = f"{said.verdict} {said.check}: {said.message}" if said else "nothing"
            stopped = "" if cause.refused_by == "AWS" else f"stopped by {cause.refused_by}: "
            sys.stdout.write(f"| {cause.name} | {predicted} | {'; '.join(bad) or stopped + made.happened} |\n")
        for name, inject in GOOD.items():
            with restored(account):
                made = outcome(account, inject(account))
            bad = [
                *(f"{one.verdict} {one.check}" for one in made.predicted),
                *([made.happened] if made.happened else []),
            ]
            wrong += bool(bad)
            sys.stdout.write(f"| (good) {name} | {'; '.join(bad) or 'nothing'} | {'it comes up' * (not bad)} |\n")
    by_aws = sum(one.refused_by == "AWS" for one in CAUSES)
    counts = f"{len(CAUSES)} causes, {by_aws} of them refused by AWS"
    sys.stdout.write(f"\n{counts}; {len(GOOD)} good plans, {wrong} not as they are to be\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
