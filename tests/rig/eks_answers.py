"""Answers of AWS that moto lacks, for the plan of a cluster: quotas, reservations, versions and simulated policies."""

from __future__ import annotations

import json
from collections.abc import Iterable

from gpuctl.eks.limits import ADDRESS_QUOTA, VPC_QUOTA
from gpuctl.eks.price_list import PLAIN_LINUX
from gpuctl.eks.quotas import ON_DEMAND_QUOTAS
from tests.rig.aws_endpoint import Answer

NO_RESERVATIONS = (
    '<DescribeCapacityReservationsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    "<capacityReservationSet/></DescribeCapacityReservationsResponse>"
)
# For moto alone, without eks_endpoint.py.
NO_GROUPS = (
    '<DescribePlacementGroupsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><placementGroupSet/>'
    "</DescribePlacementGroupsResponse>"
)
NO_PLACEMENT_GROUPS: dict[str, Answer] = {"DescribePlacementGroups": (200, NO_GROUPS)}
QUOTAS: dict[str, float] = {ON_DEMAND_QUOTAS["g"]: 64, ON_DEMAND_QUOTAS["p"]: 384, VPC_QUOTA: 5, ADDRESS_QUOTA: 5}
VERSIONS = [{"clusterVersion": "1.36", "endOfStandardSupportDate": 2132697600, "endOfExtendedSupportDate": 2164233600}]


def planning_answers(
    called: Iterable[str], quotas: dict[str, float] | None = None, denied: Iterable[str] = ()
) -> dict[str, Answer]:
    """Answers of AWS that moto lacks."""
    results = "".join(
        f"<member><EvalActionName>{name}</EvalActionName><EvalDecision>"
        f"{'explicitDeny' if name in denied else 'allowed'}</EvalDecision></member>"
        for name in called
    )
    simulated = (
        '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
        f"<SimulatePrincipalPolicyResult><EvaluationResults>{results}</EvaluationResults><IsTruncated>false"
        "</IsTruncated></SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
    )
    listed = [{"QuotaName": name, "Value": value} for name, value in (quotas or QUOTAS).items()]
    return {
        "ListServiceQuotas": (200, json.dumps({"Quotas": listed})),
        "DescribeCapacityReservations": (200, NO_RESERVATIONS),
        "/cluster-versions": (200, json.dumps({"clusterVersions": VERSIONS})),
        "SimulatePrincipalPolicy": (200, simulated),
    }


def product(usd: str = "0.6", unit: str = "Hrs", region: str = "us-west-2", **attributes: str) -> str:
    """A product of the Pricing API, as text."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    term = {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"a.b.c": dimension}}
    whole = {**PLAIN_LINUX, "instanceType": "g4dn.xlarge", "regionCode": region, **attributes}
    return json.dumps({"product": {"attributes": whole}, "terms": {"OnDemand": {"a.b": term}}})


def balancer(
    usd: str,
    usage: str = "USW2-LoadBalancerUsage",
    family: str = "Load Balancer-Network",
    region: str = "us-west-2",
    unit: str = "Hrs",
    **more: str,
) -> str:
    """A product as AWS's price lists of AWSELB, AmazonEC2 and AmazonVPC have it, as text. `family`: "" for none."""
    plain = json.loads(product(usd, unit))
    attributes = {"regionCode": region, "operation": "LoadBalancing:Network", "locationType": "AWS Region"}
    named = {"productFamily": family} if family else {}
    plain["product"] = {**named, "attributes": {**attributes, "usagetype": usage, **more}}
    return json.dumps(plain)


def beside(region: str) -> list[str]:
    """Products that cost beside nodes."""
    elb, vpc = "LoadBalancerUsage", "PublicIPv4:InUseAddress"
    return [
        balancer("0.02", elb, region=region),
        balancer("0.02", elb, "Load Balancer-Application", region, operation="LoadBalancing:Application"),
        balancer("0.02", elb, "Load Balancer", region, operation="LoadBalancing"),
        balancer("0.045", "NatGateway-Hours", "NAT Gateway", region, operation="NatGateway"),
        balancer("0.005", vpc, "", region),
        balancer("0.073", "EBS:VolumeUsage.gp3", "Storage", region, "GB-Mo", volumeApiName="gp3"),
    ]
