"""Causes for which AWS refuses a cluster or its nodes, and plans that come up: rows of eks_trial.py."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from tests.rig.aws_endpoint import client
from tests.rig.eks_endpoint import ACCOUNT, REGION, backend
from tests.rig.eks_refusing_account import NO_ROOM, ON_DEMAND, SPOT
from tests.rig.eks_trial import NOW, Cause, Inject, World, efa, group, outcome, text
from tests.rig.source_files import ROOT

G, P, CPU = ON_DEMAND["g"], ON_DEMAND["p"], ON_DEMAND["c"]

OWN = "10.20.0.0/16"
TRUST = json.dumps({"Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}]})
TAGS = {"gpuctl:cluster": "lab", "gpuctl:region": REGION}


def denied(action: str, *groups: dict[str, Any], **more: Any) -> Inject:
    def inject(world: World) -> str:
        world.account.denied.add(action)
        return text(world, *groups, **more)

    return inject


def with_policy(*missing: str) -> Inject:
    """The login has gpuctl's policy of `create`, without some actions."""

    def inject(world: World) -> str:
        whole = json.loads((ROOT / "examples/eks/policies/create.json").read_text())["Statement"]
        rows = [{**one, "Action": [name for name in one["Action"] if name not in missing]} for one in whole]
        world.account.allow[:] = rows
        return text(world)

    return inject


def denied_efa(world: World) -> str:
    world.account.denied.add("ec2:AuthorizeSecurityGroupEgress")
    return efa(world)


def quota(name: str, value: float, *groups: dict[str, Any], service: str = "ec2", **more: Any) -> Inject:
    def inject(world: World) -> str:
        world.account.quota[service] = {**world.account.quota[service], name: value}
        return text(world, *groups, **more)

    return inject


def running(world: World) -> str:
    """Two instances of somebody else run."""
    wanted = {"ImageId": "ami-12c6146b", "MinCount": 2, "MaxCount": 2, "InstanceType": "g4dn.xlarge"}
    world.ec2.run_instances(**wanted, SubnetId=world.public["a"])
    return quota(G, 10)(world)


def unused_reservation(world: World) -> str:
    world.reserve(kind="g4dn.xlarge")
    return quota(G, 8)(world)


def two_groups(world: World) -> str:
    pair = (group(count=1), group(count=1, name="more"))
    return quota(G, 7, *pair)(world)


def limit(name: str, used: str) -> Inject:
    """A quota of what a VPC needs that is used up."""

    def inject(world: World) -> str:
        service = "ec2" if "Elastic" in name else "vpc"
        count = len(getattr(backend("ec2"), used))
        return quota(name, count, service=service, vpc=OWN)(world)

    return inject


def reserved(kind: str = "p4d.24xlarge", capacity: str = "reservation", zones: str = "abc", **changed: Any) -> Inject:
    """A group of two on a reservation that is changed so."""

    def inject(world: World) -> str:
        world.reserve(**changed)
        more = {"capacity": capacity, "reservation": "cr-0a1b2c3d"}
        return efa(world, kind, 2, zones, **more)

    return inject


def on_block(*, zones: str = "abc", capacity: str = "block", desired: int = 2, **changed: Any) -> Inject:
    def inject(world: World) -> str:
        world.block(**changed)
        more = {"capacity": capacity, "reservation": "cr-0a1b2c3d", "desired": desired}
        return efa(world, "p5.48xlarge", 2, zones, **more)

    return inject


def no_reservation(world: World) -> str:
    return efa(world, capacity="reservation", reservation="cr-0dead00d")


def reserved_in_group(world: World) -> str:
    arn = f"arn:aws:ec2:{REGION}:{ACCOUNT}:placement-group/theirs"
    world.account.groups["theirs"] = ("cluster", "available")
    return reserved(placementGroupArn=arn)(world)


def placed(name: str, kind: str = "g4dn.xlarge", count: int = 1, known: tuple[str, str] | None = None) -> Inject:
    def inject(world: World) -> str:
        if known:
            world.account.groups[name] = known
        return text(world, group(kind, count, placement=name, ami=ami(kind)))

    return inject


def one_zone_spread(world: World) -> str:
    """Eight nodes, in the one of the subnets' zones that a reservation has."""
    world.account.groups["theirs"] = ("spread", "available")
    world.reserve(kind="g4dn.xlarge", count=8)
    more = {"capacity": "reservation", "reservation": "cr-0a1b2c3d"}
    return text(world, group(count=8, placement="theirs", **more))


def many_groups(world: World) -> str:
    world.account.groups.update({f"pg-{number}": ("cluster", "available") for number in range(500)})
    return text(world, group(placement="cluster"))


def ami(kind: str) -> str:
    return "AL2023_x86_64_NVIDIA" if kind.startswith(("g", "p")) else "AL2023_x86_64_STANDARD"


def zones(letters: str, kind: str = "g4dn.xlarge") -> Inject:
    return lambda world: text(world, group(kind), zones=letters)


def several_vpcs(world: World) -> str:
    return text(world, subnets=[world.public["a"], world.private["b"]])


def missing_subnet(world: World) -> str:
    return text(world, subnets=[world.public["a"], "subnet-0dead00d"])


def full(world: World) -> str:
    """Eleven addresses in each subnet; 30 nodes."""
    return text(world, group(count=30), subnets=world.small("10.2.0.0/16", "10.2.0.0/28", "10.2.1.0/28"))


def no_room_for_control_plane(world: World) -> str:
    first, second = world.small("10.3.0.0/16", "10.3.0.0/24", "10.3.1.0/28")
    for _ in range(6):
        world.ec2.create_network_interface(SubnetId=second, Description="AWS Lambda VPC ENI-train-1")
    return text(world, subnets=[first, second])


def fragmented(world: World) -> str:
    """One address in each /28 is held."""
    names = world.small("10.4.0.0/16", "10.4.0.0/25", "10.4.1.0/25")
    for number, name in enumerate(names):
        for part in range(8):
            address = f"10.4.{number}.{part * 16 + 8}"
            world.ec2.create_network_interface(SubnetId=name, PrivateIpAddress=address, Description="ELB app/web/1")
    return text(world, subnets=names, cni=["ENABLE_PREFIX_DELEGATION=true"])


def no_way_out(world: World) -> str:
    vpc = world.vpc("10.5.0.0/16")
    return text(world, subnets=[world.subnet(vpc, f"10.5.{number}.0/24", "ab"[number]) for number in range(2)])


def endpoint_missing(world: World) -> str:
    plain = no_way_out(world)
    world.endpoints(json.loads(plain)["subnets"][0], "ec2", "ecr.api", "ecr.dkr", "s3")
    return plain


def nat_gone(world: World) -> str:
    vpc = world.vpc("10.6.0.0/16")
    world.internet(vpc)
    outer = world.subnet(vpc, "10.6.9.0/24", "a", public=True)
    inner = [world.subnet(vpc, f"10.6.{number}.0/24", "aa"[number]) for number in range(1)]
    nat = world.nat(vpc, outer, inner[0])
    other = world.subnet(vpc, "10.6.8.0/24", "b", public=True)
    backend("ec2").nat_gateways[nat].state = "deleted"
    return text(world, subnets=[inner[0], other])


def no_public_address(world: World) -> str:
    names = world.small("10.7.0.0/16", "10.7.0.0/24", "10.7.1.0/24")
    for name in names:
        world.ec2.modify_subnet_attribute(SubnetId=name, MapPublicIpOnLaunch={"Value": False})
    return text(world, subnets=names)


def several_interfaces(world: World) -> str:
    return text(world, group("p4d.24xlarge", 2))


def dns(attribute: str) -> Inject:
    def inject(world: World) -> str:
        names = world.small("10.8.0.0/16", "10.8.0.0/24", "10.8.1.0/24")
        (row, *_) = world.ec2.describe_subnets(SubnetIds=names)["Subnets"]
        world.ec2.modify_vpc_attribute(VpcId=row["VpcId"], **{attribute: {"Value": False}})
        return text(world, subnets=names)

    return inject


def acl(world: World) -> str:
    """A network ACL that lets nothing out."""
    names = world.small("10.9.0.0/16", "10.9.0.0/24", "10.9.1.0/24")
    filters = [{"Name": "association.subnet-id", "Values": names}]
    (row,) = world.ec2.describe_network_acls(Filters=filters)["NetworkAcls"]
    world.ec2.delete_network_acl_entry(NetworkAclId=row["NetworkAclId"], RuleNumber=100, Egress=True)
    return text(world, subnets=names)


def version(name: str, ended_days: int | None = None) -> Inject:
    def inject(world: World) -> str:
        if ended_days is not None:
            world.account.ends[name] = NOW - timedelta(days=ended_days)
        return text(world, version=name)

    return inject


def name_taken(world: World) -> str:
    role(world, "theirs", {})
    arn = next(one.arn for one in backend("iam").roles.values() if one.name.endswith("theirs"))
    backend("eks").create_cluster("lab", arn, {"subnetIds": [world.public["a"]]})
    return text(world)


def role_taken(world: World) -> str:
    role(world, "node", {})
    return text(world)


def role(_: World, part: str, tags: dict[str, str], trust: str = TRUST) -> None:
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    path = "/gpuctl/" if part == "cluster" else "/"
    backend("iam").create_role(f"gpuctl-lab-{REGION}-{part}", trust, path, None, "", listed, "3600")


def bad_trust(world: World) -> str:
    """The role of an earlier, interrupted run; somebody has changed whom it trusts."""
    role(world, "cluster", {**TAGS, "gpuctl:part": "cluster"})
    return text(world)


def half_made_twice(world: World) -> str:
    """Two VPCs of one part, as of two runs that met."""
    for _ in range(2):
        tagged = [{"Key": key, "Value": value} for key, value in {**TAGS, "gpuctl:part": "vpc"}.items()]
        made = {"ResourceType": "vpc", "Tags": tagged}
        world.ec2.create_vpc(CidrBlock=OWN, TagSpecifications=[made])
    return text(world, vpc=OWN)


def roles_used_up(world: World) -> str:
    world.account.most_roles = len(backend("iam").roles) + 1
    return text(world)


def clusters_used_up(world: World) -> str:
    return quota("Clusters", 0, service="eks")(world)


def allowed(blocks: list[str]) -> Inject:
    return lambda world: text(world, allowed=blocks)


def own(*groups: dict[str, Any], **more: Any) -> Inject:
    return lambda world: text(world, *groups, vpc=OWN, **more)


def reserved_where_no_cluster_is(world: World) -> str:
    world.reserve(kind="p5.48xlarge", availabilityZoneId="use1-az3")
    wanted = group("p5.48xlarge", 2, capacity="reservation", reservation="cr-0a1b2c3d")
    return own(wanted)(world)


def tight(world: World) -> str:
    """A node in each subnet leaves a load balancer no room."""
    names = world.small("10.11.0.0/16", "10.11.0.0/26", "10.11.1.0/26")
    for name in names:
        addresses = {"SecondaryPrivateIpAddressCount": 31, "Description": "AWS Lambda VPC ENI-train-1"}
        world.ec2.create_network_interface(SubnetId=name, **addresses)
    return text(world, group(count=2, max_pods=4), subnets=names)


def balancer(world: World, plain: str) -> str:
    """Refusal of a load balancer in the subnets of a cluster; its controller chooses one with room in each zone."""
    rows = world.account.subnets(json.loads(plain)["subnets"])
    chosen = {one["AvailabilityZone"]: one["SubnetId"] for one in rows if world.account.has_balancer_room(one)}
    if not chosen:  # the controller's words
        counts = f"0 are tagged for other clusters, and {len(rows)} have insufficient available IP addresses"
        return f"unable to resolve at least one subnet. Evaluated {len(rows)} subnets: {counts}"
    try:
        elb(world).create_load_balancer(Name="pod", Subnets=list(chosen.values()), Type="network")
    except Exception as error:  # noqa: BLE001 - botocore makes its classes at run time
        return str(error)
    return ""


def small_beside_large(world: World) -> str:
    """A /28 has no room for a load balancer, which gets a subnet of another zone."""
    names = world.small("10.12.0.0/16", "10.12.0.0/24", "10.12.1.0/28")
    return text(world, group("c5.large", ami=ami("c5"), max_pods=4), subnets=names)


def elb(world: World) -> Any:
    return client(world.url, "elbv2")


CAUSES = [
    Cause("CreateCluster denied", "permissions", "", denied("eks:CreateCluster"), "eks:CreateCluster"),
    Cause("PassRole denied", "permissions", "", denied("iam:PassRole"), "iam:PassRole"),
    Cause("RunInstances denied", "permissions", "", denied("ec2:RunInstances"), "ec2:RunInstances"),
    Cause("CreateRole denied", "permissions", "", denied("iam:CreateRole"), "iam:CreateRole"),
    Cause("CreateVpc denied", "permissions", "", denied("ec2:CreateVpc", vpc=OWN), "ec2:CreateVpc"),
    Cause("AllocateAddress denied", "permissions", "", denied("ec2:AllocateAddress", vpc=OWN), "ec2:AllocateAddress"),
    Cause("CreateLaunchTemplate denied", "permissions", "", denied("ec2:CreateLaunchTemplate"), "LaunchTemplate"),
    Cause(
        *("CreateAccessEntry denied", "permissions", ""),
        *(denied("eks:CreateAccessEntry", admins=[f"arn:aws:iam::{ACCOUNT}:role/Admin"]), "eks:CreateAccessEntry"),
    ),
    Cause(
        *("CreateNodegroup not allowed", "permissions", ""),
        *(with_policy("eks:CreateNodegroup"), "eks:CreateNodegroup"),
        verdict="UNKNOWN",
    ),
    Cause("rule of EFA denied", "permissions", "", denied_efa, "ec2:AuthorizeSecurityGroupEgress"),
    Cause("quota of G", "quota", G, quota(G, 4, group(count=2)), "VcpuLimitExceeded"),
    Cause("quota of P", "quota", P, quota(P, 0, group("p4d.24xlarge", layout="plain")), "VcpuLimitExceeded"),
    Cause(
        *("quota of standard types", "quota", CPU),
        *(quota(CPU, 1, group("c5.large", ami=ami("c5"))), "VcpuLimitExceeded"),
    ),
    Cause(
        *("spot quota of G", "quota", SPOT["g"]),
        *(quota(SPOT["g"], 0, group(capacity="spot")), "MaxSpotInstanceCountExceeded"),
    ),
    Cause(
        *("spot quota of P5", "quota", SPOT["p5"]),
        *(quota(SPOT["p5"], 10, group("p5.4xlarge", capacity="spot", layout="plain")), "MaxSpotInstanceCountExceeded"),
    ),
    Cause("quota used by what runs", "quota", G, running, "VcpuLimitExceeded"),
    Cause("quota used by a reservation", "quota", G, unused_reservation, "VcpuLimitExceeded"),
    Cause("quota for two groups", "quota", G, two_groups, "VcpuLimitExceeded"),
    Cause("type in no zone", "offer", "gpu", zones("ab", "p5e.48xlarge"), "no subnet lies there", refused_by="gpuctl"),
    Cause(
        "type in other zones", "offer", "gpu", zones("bd", "p5en.48xlarge"), "no subnet lies there", refused_by="gpuctl"
    ),
    Cause("zone without control plane", "zones", "lab", zones("ae"), "UnsupportedAvailabilityZoneException"),
    Cause(
        *("one zone", "zones", "lab"),
        lambda world: text(world, subnets=[world.public["a"], world.subnet(_vpc(world), "10.0.200.0/24", "a")]),
        "at least two different AZs",
        beside=["network"],
    ),
    Cause("subnets of two VPCs", "zones", "lab", several_vpcs, "same VPC", beside=["addresses"]),
    Cause("subnet that does not exist", "zones", "lab", missing_subnet, "of 2 are listed", refused_by="gpuctl"),
    Cause("no such reservation", "reservation", "gpu", no_reservation, "no subnet lies there", refused_by="gpuctl"),
    Cause("reservation cancelled", "reservation", "gpu", reserved(state="cancelled"), NO_ROOM),
    Cause("reservation full", "reservation", "gpu", reserved(availableInstanceCount=1), NO_ROOM),
    Cause("reservation of another type", "reservation", "gpu", reserved(kind="p4de.24xlarge"), NO_ROOM),
    Cause(
        *("reservation in another zone", "reservation", "gpu"),
        *(reserved(zones="bc"), "no subnet lies there"),
        refused_by="gpuctl",
    ),
    Cause("reservation over", "reservation", "gpu", reserved(endDate=NOW - timedelta(minutes=5)), NO_ROOM),
    Cause("reservation that is a block", "reservation", "gpu", on_block(capacity="reservation"), "capacityType"),
    Cause("block that is a reservation", "reservation", "gpu", reserved(capacity="block"), "capacityType"),
    Cause(
        *("block not begun", "reservation", "gpu"),
        *(on_block(state="scheduled", startDate=NOW + timedelta(days=2), endDate=NOW + timedelta(days=3)), NO_ROOM),
        verdict="WARN",
    ),
    Cause("block about to end", "reservation", "gpu", on_block(endDate=NOW + timedelta(minutes=35)), NO_ROOM),
    Cause("block full", "reservation", "gpu", on_block(availableInstanceCount=0), NO_ROOM, beside=["reservation"]),
    Cause("reservation made in a group", "placement", "gpu", reserved_in_group, "InsufficientInstanceCapacity"),
    Cause("no such placement group", "placement", "gpu", placed("nowhere"), "InvalidPlacementGroup.Unknown"),
    Cause(
        *("placement group that goes", "placement", "gpu"),
        *(placed("theirs", known=("cluster", "deleting")), "InvalidPlacementGroup.Unknown"),
    ),
    Cause(
        *("spread group too small", "placement", "gpu"),
        *(placed("theirs", count=15, known=("spread", "available")), "InsufficientInstanceCapacity"),
    ),
    Cause(
        *("spread group too small for a type of one zone", "placement", "gpu"),
        *(one_zone_spread, "InsufficientInstanceCapacity"),
    ),
    Cause(
        *("type not for cluster groups", "placement", "gpu"),
        *(placed("cluster", "t3.large"), "InvalidParameterCombination"),
    ),
    Cause("placement groups used up", "limit", "placement groups", many_groups, "PlacementGroupLimitExceeded"),
    Cause("too few addresses", "addresses", "gpu", full, "InsufficientFreeAddresses"),
    Cause(
        *("no addresses for the control plane", "addresses", "lab"),
        *(no_room_for_control_plane, "InsufficientFreeAddresses"),
    ),
    Cause(
        *("no room for a load balancer", "addresses", "lab", tight, "insufficient available IP addresses"),
        verdict="WARN",
        later=balancer,
        refused_by="the load balancer controller",
    ),
    Cause(
        *("reservation where EKS has no control plane", "zones", "lab"),
        *(reserved_where_no_cluster_is, "a VPC of its own reaches none of these"),
        refused_by="gpuctl",
    ),
    Cause("no free /28", "addresses", "gpu", fragmented, "InsufficientCidrBlocks"),
    Cause("private subnets without a way out", "network", "subnet-*", no_way_out, "failed to join"),
    Cause("one endpoint missing", "network", "subnet-*", endpoint_missing, "failed to join"),
    Cause("NAT gateway gone", "network", "subnet-*", nat_gone, "failed to join"),
    Cause("public subnets without addresses", "network", "gpu", no_public_address, "failed to join"),
    Cause("several interfaces in public subnets", "network", "gpu", several_interfaces, "failed to join"),
    Cause("DNS hostnames off", "network", "vpc-*", dns("EnableDnsHostnames"), "failed to join"),
    Cause("DNS support off", "network", "vpc-*", dns("EnableDnsSupport"), "failed to join"),
    Cause("network ACL", "network", "subnet-*", acl, "failed to join"),
    Cause("VPCs used up", "limit", "VPCs per Region", limit("VPCs per Region", "vpcs"), "VpcLimitExceeded"),
    Cause(
        *("Elastic IPs used up", "limit", "EC2-VPC Elastic IPs"),
        *(limit("EC2-VPC Elastic IPs", "addresses"), "AddressLimitExceeded"),
    ),
    Cause(
        *("internet gateways used up", "limit", "Internet gateways per Region"),
        *(limit("Internet gateways per Region", "internet_gateways"), "InternetGatewayLimitExceeded"),
    ),
    Cause("clusters used up", "limit", "Clusters", clusters_used_up, "ResourceLimitExceededException"),
    Cause(
        *("too many node groups", "limit", "Managed node groups per cluster"),
        quota("Managed node groups per cluster", 1, group(), group(name="more"), service="eks"),
        "ResourceLimitExceededException",
    ),
    Cause(
        *("too many nodes in a group", "limit", "gpu"),
        *(quota("Nodes per managed node group", 5, {**group(), "max": 6}, service="eks"), "maxSize"),
    ),
    Cause("roles used up", "limit", "IAM roles", roles_used_up, "RolesPerAccount"),
    Cause("version not offered", "version", "1.29", version("1.29"), "unsupported Kubernetes version"),
    Cause("version out of support", "version", "1.30", version("1.30", 4), "unsupported Kubernetes version"),
    Cause(
        *("image for another processor", "image", "gpu"),
        *(lambda world: text(world, group("g5g.xlarge")), "not a valid instance type for requested amiType"),
    ),
    Cause("name taken", "name", "lab", name_taken, "already exists with name"),
    Cause("role taken", "parts", "*(node)", role_taken, "does not have gpuctl's tags", refused_by="gpuctl"),
    Cause("role that does not trust EKS", "parts", "*(cluster)", bad_trust, "could not be assumed"),
    Cause("part made twice", "parts", "VPC *", half_made_twice, "more than one of a part", refused_by="gpuctl"),
    Cause("private blocks allowed", "network", "lab", allowed(["10.0.0.0/8"]), "publicAccessCidrs"),
    Cause(
        *("addon not for the version", "addons", "kubecost_kubecost"),
        *(lambda world: text(world, addons=["kubecost_kubecost"]), "is not supported in 1.36 kubernetes version"),
    ),
    Cause(
        *("administrator that does not exist", "admins", "*Gone"),
        lambda world: text(world, admins=[f"arn:aws:iam::{ACCOUNT}:role/Gone"]),
        "invalid principal",
    ),
]


def spread(world: World) -> str:
    world.account.groups["theirs"] = ("spread", "available")
    return text(world, group(count=14, placement="theirs"))


def private_with_endpoints(world: World) -> str:
    plain = no_way_out(world)
    world.endpoints(json.loads(plain)["subnets"][0], "ec2", "ecr.api", "ecr.dkr", "s3", "sts")
    return plain


def resumed(world: World) -> str:
    """An interrupted run has made the first role."""
    trust = TRUST.replace("lambda", "eks")
    role(world, "cluster", {**TAGS, "gpuctl:part": "cluster"}, trust)
    return text(world, vpc=OWN)


def finished(world: World) -> str:
    """A group of two is made, and its nodes use up the quota; only another one is missing."""
    done = text(world, group(count=2))
    assert outcome(world, done).happened == ""
    world.account.running.clear()
    wanted = {"ImageId": "ami-12c6146b", "MinCount": 2, "MaxCount": 2, "InstanceType": "g4dn.xlarge"}
    world.ec2.run_instances(**wanted, SubnetId=world.public["a"])
    quota(G, 8)(world)
    return text(world, group(count=2), group("c5.large", name="cpu", ami=ami("c5")))


def exactly(world: World) -> str:
    """The quota is what the nodes need, and the last VPC and address are free."""
    quota(G, 8)(world)
    limit("VPCs per Region", "vpcs")(world)
    world.account.quota["vpc"]["VPCs per Region"] += 1
    return text(world, group(count=2), vpc=OWN)


def scheduled(world: World) -> str:
    """A reservation in its placement group, and nodes that are not yet desired beyond its room."""
    arn = f"arn:aws:ec2:{REGION}:{ACCOUNT}:placement-group/theirs"
    world.account.groups["theirs"] = ("cluster", "available")
    world.reserve(placementGroupArn=arn)
    return efa(world, capacity="reservation", reservation="cr-0a1b2c3d", placement="theirs")


def on_running_block(world: World) -> str:
    world.block()
    plain = json.loads(efa(world, "p5.48xlarge", capacity="block", reservation="cr-0a1b2c3d"))
    return json.dumps({**plain, "ttl": "8h"})


def mixed(world: World) -> str:
    groups = (group(), group("g5.xlarge", name="a10"), group("c5.large", name="cpu", ami=ami("c5")))
    return text(world, *groups, admins=[f"arn:aws:iam::{ACCOUNT}:role/Admin"], addons=["aws-ebs-csi-driver"])


def with_prefixes(world: World) -> str:
    return text(world, group(max_pods=30), cni=["ENABLE_PREFIX_DELEGATION=true"])


GOOD: dict[str, Inject] = {
    "a login with gpuctl's policy alone": with_policy(),
    "one g4dn in given subnets": text,
    "one g4dn in a VPC of its own": own(),
    "spot": lambda world: text(world, group(count=4, capacity="spot")),
    "spot of P5": lambda world: efa(world, "p5.48xlarge", capacity="spot"),
    "EFA in private subnets": efa,
    "p5 with EFA": lambda world: efa(world, "p5.48xlarge"),
    "p5 with all its bandwidth": lambda world: efa(world, "p5.48xlarge", layout="bandwidth"),
    "p6-b300, in two zones": lambda world: efa(world, "p6-b300.48xlarge"),
    "EFA in a VPC of its own": own(group("p4d.24xlarge", 2, placement="cluster")),
    "cluster placement group": lambda world: text(world, group(count=2, placement="cluster")),
    "spread placement group": spread,
    "reservation": reserved(),
    "reservation in a placement group": scheduled,
    "block until after the time to live": on_running_block,
    "private subnets with endpoints": private_with_endpoints,
    "Arm": lambda world: text(world, group("g5g.xlarge", ami="AL2023_ARM_64_NVIDIA"), zones="abc"),
    "Bottlerocket with taints": lambda world: text(
        world, group(ami="BOTTLEROCKET_x86_64_NVIDIA", taints=["nvidia.com/gpu:NoSchedule"])
    ),
    "three groups, an administrator, an addon": mixed,
    "prefixes": with_prefixes,
    "no node yet": lambda world: text(world, {**group(), "desired": 0}),
    "public endpoint for one block": allowed(["203.0.113.0/24"]),
    "the last of each quota": exactly,
    "a small subnet beside a large one": small_beside_large,
    "half made": resumed,
    "a group is finished": finished,
}


def _vpc(world: World) -> str:
    (row,) = world.ec2.describe_subnets(SubnetIds=[world.public["a"]])["Subnets"]
    return str(row["VpcId"])
