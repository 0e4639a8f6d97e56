"""Remove an EKS cluster: objects around it, with the owners of their interfaces."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import destroy, removal
from gpuctl.eks import state as states
from gpuctl.eks.objects import Kind, Object, State, from_answer
from gpuctl.eks.removal import (
    BALANCER_TAG,
    CNI_TAG,
    CSI_TAG,
    EKS_TAG,
    GROUP_CLUSTER_TAG,
    KARPENTER_TAG,
    NODE_TAG,
    Belongings,
    Choice,
    belongs,
)
from gpuctl.eks.remover import Remover
from gpuctl.eks.wait import Waiter
from gpuctl.subnets import owners
from gpuctl.subnets import read as subnets_read
from gpuctl.subnets.owners import Leak
from gpuctl.workflows import eks_balancers, eks_leftovers

TAGS_AT_ONCE = 20  # load balancers of one request, by AWS
LISTS: Mapping[Kind, tuple[str, str]] = {
    Kind.INTERFACE: ("DescribeNetworkInterfaces", "NetworkInterfaces"),
    Kind.SECURITY_GROUP: ("DescribeSecurityGroups", "SecurityGroups"),
    Kind.VOLUME: ("DescribeVolumes", "Volumes"),
    Kind.INSTANCE: ("DescribeInstances", "Reservations"),
    Kind.ENDPOINT: ("DescribeVpcEndpoints", "VpcEndpoints"),
    Kind.NAT: ("DescribeNatGateways", "NatGateways"),
    Kind.ADDRESS: ("DescribeAddresses", "Addresses"),
    Kind.TEMPLATE: ("DescribeLaunchTemplates", "LaunchTemplates"),
}
AROUND = (*LISTS, Kind.LOAD_BALANCER, *eks_leftovers.KINDS)
FILTERS = {Kind.NAT: "Filter"}  # name of the parameter, if it is another
IDS_AT_ONCE = 200  # values of one filter, by AWS
ANY_CLUSTER = NODE_TAG.format("")


def known(aws: Aws, cluster: str) -> State:
    """The state of a cluster; InvalidInput if AWS has nothing of it in this region."""
    state = states.read(aws, cluster)
    if any(one.ours or one.kind is Kind.CLUSTER for one in state.objects):
        return state
    left = around(aws, state)  # a removal may have left volumes, logs or load balancers, and nothing else of it
    if not any(removal.is_of(one, left, cluster) for one in left.objects):
        wrong = f"{aws.region} has nothing of it"
        for kind, error in left.unread.items():
            wrong += f"; {removal.named_kind(kind)} were not searched: {error}"
        hint = "check the name and the region; `gpuctl eks reap` lists the clusters that gpuctl made"
        raise InvalidInput(f"use the cluster {cluster}", wrong, hint)
    return state


def around(aws: Aws, state: State, kinds: Collection[Kind] = AROUND) -> Belongings:
    """Objects of controllers and others: by tags of the cluster, and all that is in a VPC of ours."""
    cluster = state.cluster
    wanted = kinds
    if Kind.SNAPSHOT in kinds:
        kinds = {*kinds, Kind.VOLUME}  # a snapshot without a tag of the cluster is known by its volume
    if Kind.VOLUME in kinds:
        kinds = {*kinds, Kind.INSTANCE}  # a volume without a tag of the cluster is known by its node
    vpcs = [one.name for one in state.of(Kind.VPC) if one.ours]
    answers = states.described(aws, {key: one for key, one in _requests(cluster, vpcs).items() if key[0] in kinds})
    objects: dict[tuple[Kind, str], Object] = {}
    rows: dict[str, Mapping[str, Any]] = {}
    for (kind, _), found in answers.items():
        for row in eks_leftovers.flat(kind, found):
            one = from_answer(kind, row, cluster, aws.region)
            if eks_leftovers.counts(one):
                objects[kind, one.name] = one
                rows[one.name] = row
    for one in _balancers(aws, state, vpcs) if Kind.LOAD_BALANCER in kinds else ():
        objects[one.kind, one.name] = one
    nodes = {name for kind, name in objects if kind is Kind.INSTANCE}
    unassigned = _add_volumes(aws, state, objects, nodes) if Kind.VOLUME in kinds else set()
    near = [one for (kind, name), one in objects.items() if kind is Kind.INSTANCE or _is_claims(one, unassigned)]
    listed = {*(name for _, name in objects), *(one.name for one in state.objects)}
    leftovers = eks_leftovers.read(aws, cluster, kinds, near, listed)
    objects |= {(one.kind, one.name): one for one in leftovers.objects}
    interfaces = [name for kind, name in objects if kind is Kind.INTERFACE]
    read = {name: subnets_read.interface(rows[name]) for name in interfaces}
    now = datetime.now(UTC)
    leaked = frozenset(
        name for name, one in read.items() if one.tags.get(CNI_TAG) == cluster and owners.leak(one, now) is Leak.YES
    )
    return Belongings(
        [one for one in objects.values() if one.kind in wanted],
        {name: str(owners.owner(one, nodes)) for name, one in read.items()},
        leaked,
        frozenset(unassigned | leftovers.unassigned),
        _named_by(aws, state, objects) if Kind.SECURITY_GROUP in kinds else {},
        leftovers.unread,
    )


def _is_claims(one: Object, unassigned: Collection[str]) -> bool:
    return one.kind is Kind.VOLUME and one.name not in unassigned and removal.is_claims(one)


def _named_by(aws: Aws, state: State, objects: Mapping[tuple[Kind, str], Object]) -> dict[str, list[str]]:
    """Security groups that go -> groups of others with rules that name them."""
    ours = [one for one in state.of(Kind.SECURITY_GROUP) if one.ours]
    made = [one for one in objects.values() if one.kind is Kind.SECURITY_GROUP and belongs(one, state.cluster)]
    going = sorted({one.name for one in (*ours, *made)})
    if not going:
        return {}
    requests = {
        name: Request(
            *("list rules that name security groups", "ec2", "DescribeSecurityGroups", "SecurityGroups"),
            {"Filters": [{"Name": name, "Values": going}]},
        )
        for name in ("ip-permission.group-id", "egress.ip-permission.group-id")
    }
    found: dict[str, list[str]] = {}
    for row in (row for rows in states.described(aws, requests).values() for row in rows):
        rules = [*row.get("IpPermissions", ()), *row.get("IpPermissionsEgress", ())]
        named = {pair["GroupId"] for rule in rules for pair in rule.get("UserIdGroupPairs", ())}
        for name in named.intersection(going) if row["GroupId"] not in going else ():
            others = found.setdefault(name, [])
            other = f"{row['GroupId']} ({row.get('GroupName', '')})"
            others += [other] * (other not in others)
    return found


def _add_volumes(aws: Aws, state: State, objects: dict[tuple[Kind, str], Object], nodes: Collection[str]) -> set[str]:
    """Add volumes without a tag of the cluster; the ids of those that no tag or node assigns to it."""
    instances = [one for one in objects.values() if one.kind is Kind.INSTANCE]
    added = {
        (one.kind, one.name): one
        for one in _untagged_volumes(aws, state, instances)
        if (one.kind, one.name) not in objects
    }
    objects.update(added)
    return {one.name for one in added.values() if not (removal.has_claim_tag(one) and _nodes_of(one) & set(nodes))}


def _untagged_volumes(aws: Aws, state: State, instances: Sequence[Object]) -> list[Object]:
    """Volumes without a tag of any cluster: attached to nodes, or made by an EBS CSI driver and attached to nothing."""
    ids = [one.name for one in instances]
    requests: dict[Any, Request] = {
        start: _volumes([{"Name": "attachment.instance-id", "Values": ids[start : start + IDS_AT_ONCE]}])
        for start in range(0, len(ids), IDS_AT_ONCE)
    }
    zones = _zones(aws, state, instances)
    in_zones = [{"Name": "availability-zone", "Values": zones}] if zones else []  # else those of the region
    requests["csi"] = _volumes([{"Name": "tag-key", "Values": [CSI_TAG]}, *in_zones])
    rows = [row for found in states.described(aws, requests).values() for row in found]
    found = {one.name: one for one in (from_answer(Kind.VOLUME, row, state.cluster, aws.region) for row in rows)}
    nodes = set(ids)
    return [
        one
        for one in found.values()
        if eks_leftovers.counts(one)
        and not any(key.startswith(ANY_CLUSTER) for key in one.tags)
        and (not _nodes_of(one) or _nodes_of(one) & nodes)
    ]


def _volumes(filters: Sequence[Mapping[str, Any]]) -> Request:
    return Request("list volumes", "ec2", "DescribeVolumes", "Volumes", {"Filters": list(filters)})


def _zones(aws: Aws, state: State, instances: Sequence[Object]) -> list[str]:
    """Zones of the cluster's subnets and nodes; empty if they are not known."""
    given = {str(name) for one in state.of(Kind.GROUP) for name in one.data.get("subnets") or ()}
    for one in state.of(Kind.CLUSTER):
        given |= set(one.data.get("resourcesVpcConfig", {}).get("subnetIds") or ())
    answers = [one.data for one in state.of(Kind.SUBNET)]
    if missing := sorted(given - {one.name for one in state.of(Kind.SUBNET)}):
        by_id = {"Filters": [{"Name": "subnet-id", "Values": missing}]}
        answers += aws.read(Request("list subnets", "ec2", "DescribeSubnets", "Subnets", by_id), lambda answer: answer)
    zones = {one.get("AvailabilityZone") for one in answers}
    zones |= {one.data.get("Placement", {}).get("AvailabilityZone") for one in instances}
    return sorted(filter(None, zones))


def _nodes_of(volume: Object) -> set[str]:
    return {str(one["InstanceId"]) for one in volume.data.get("Attachments") or () if one.get("InstanceId")}


def _requests(cluster: str, vpcs: Sequence[str]) -> dict[Any, Request]:
    by_key = {"Name": "tag-key", "Values": [NODE_TAG.format(cluster)]}
    ours = states.filter_tag(cluster)

    def by(tag: str) -> dict[str, Any]:
        return {"Name": f"tag:{tag}", "Values": [cluster]}

    filters: dict[Kind, list[dict[str, Any]]] = {
        Kind.INTERFACE: [by(CNI_TAG), ours],
        Kind.SECURITY_GROUP: [by_key, by(BALANCER_TAG), by(EKS_TAG)],
        Kind.VOLUME: [by_key, ours],
        Kind.INSTANCE: [by_key, ours],
        Kind.NAT: [by_key],
        Kind.ADDRESS: [by_key],
        Kind.TEMPLATE: [by(GROUP_CLUSTER_TAG), by(KARPENTER_TAG)],
    }
    if vpcs:
        inside = {"Name": "vpc-id", "Values": list(vpcs)}
        for kind in (Kind.INTERFACE, Kind.SECURITY_GROUP, Kind.ENDPOINT, Kind.INSTANCE, Kind.NAT):
            filters.setdefault(kind, []).append(inside)
    return {
        (kind, number): Request(f"list {kind}s", "ec2", *LISTS[kind], {FILTERS.get(kind, "Filters"): [one]})
        for kind, several in filters.items()
        for number, one in enumerate(several)
    }


def _balancers(aws: Aws, state: State, vpcs: Sequence[str]) -> list[Object]:
    """Load balancers of the cluster by their tags, and others in a VPC of ours."""
    listed = states.described(
        aws,
        {
            "elbv2": Request("list load balancers", "elbv2", "DescribeLoadBalancers", "LoadBalancers"),
            "elb": Request("list Classic Load Balancers", "elb", "DescribeLoadBalancers", "LoadBalancerDescriptions"),
        },
    )
    found = []
    for service, member, parameter, name in (
        ("elbv2", "LoadBalancerArn", "ResourceArns", "ResourceArn"),
        ("elb", "LoadBalancerName", "LoadBalancerNames", "LoadBalancerName"),
    ):
        rows = {str(one[member]): one for one in listed[service]}
        request = Request("read the tags of load balancers", service, "DescribeTags", "TagDescriptions")
        tags = states.described_in_parts(aws, request, parameter, list(rows), TAGS_AT_ONCE)
        for one in tags:
            row = {**rows[str(one[name])], "Tags": one.get("Tags") or ()}
            found.append(from_answer(Kind.LOAD_BALANCER, row, state.cluster, aws.region))
    near = [
        one for one in found if belongs(one, state.cluster) or (one.data.get("VpcId") or one.data.get("VPCId")) in vpcs
    ]
    return _with_protection(aws, near)


def _with_protection(aws: Aws, balancers: Sequence[Object]) -> list[Object]:
    """Load balancers with deletion protection get the member Protected; Classic ones have no such protection."""
    doing = "read the attributes of a load balancer"
    requests = {
        one.name: Request(doing, "elbv2", "DescribeLoadBalancerAttributes", "Attributes", {"LoadBalancerArn": arn})
        for one in balancers
        if (arn := one.data.get("LoadBalancerArn"))
    }
    answers = states.described(aws, requests)

    def is_protected(one: Object) -> bool:
        attributes = {row["Key"]: row["Value"] for row in answers.get(one.name, ())}
        return attributes.get("deletion_protection.enabled") == "true"

    return [replace(one, data={**one.data, "Protected": True}) if is_protected(one) else one for one in balancers]


def preview(state: State, belongings: Belongings, choice: Choice) -> tuple[list[removal.Row], list[Finding]]:
    """Fate of every object; causes for which the removal does not begin, and what will keep a VPC from going.

    GpuctlError if log groups or snapshots are to be deleted, and could not be listed.
    """
    for kind, choice_of_kind in ((Kind.LOG_GROUP, choice.logs), (Kind.SNAPSHOT, choice.snapshots)):
        if choice_of_kind == removal.DELETE and kind in belongings.unread:
            raise belongings.unread[kind]
    found = [*removal.obstacles(state, belongings, choice), *removal.foreigners(state, belongings)]
    found += [*removal.references(belongings), *removal.unsearched(belongings, state.cluster)]
    return removal.rows(state, belongings, choice), found


def run(aws: Aws, state: State, belongings: Belongings, choice: Choice, waiter: Waiter) -> list[Finding]:
    """Remove it, and search for what remains."""

    def balancers() -> list[Object]:
        return around(aws, state, [Kind.LOAD_BALANCER]).of(Kind.LOAD_BALANCER)

    findings = eks_balancers.withdraw(aws, state, belongings, balancers, waiter)
    return [*findings, *destroy.destroy(Remover(aws, state, around, choice, waiter), belongings)]
