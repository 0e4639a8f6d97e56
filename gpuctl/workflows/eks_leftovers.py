"""Objects of a cluster that outlive it, of kinds that a login may not be allowed to list: what is read, and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import removal
from gpuctl.eks import state as states
from gpuctl.eks.objects import CLUSTER, Kind, Object, from_answer, tag_mapping
from gpuctl.eks.removal import BALANCER_TAG, CSI_TAG, EKS_TAG, EKSCTL_TAG, GROUP_CLUSTER_TAG, KARPENTER_TAG, NODE_TAG

KINDS = (Kind.LOG_GROUP, Kind.TARGET_GROUP, Kind.SNAPSHOT, Kind.STACK, Kind.REPOSITORY, Kind.OTHER)
# Prefixes of the log groups of the control plane and of Container Insights.
LOGS = ("/aws/eks/{}/", "/aws/containerinsights/{}/")
TAGS_AT_ONCE = 20  # target groups of one request, by AWS
IDS_AT_ONCE = 200  # values of one filter, by AWS
ECR = "ecr:repository"
STACKS_OF_EKSCTL = r"eksctl-{}-(?:cluster|fargate|(?:nodegroup|addon|podidentityrole)-.+)"
# Services and types of ARNs whose objects are listed by their services, go with one that is, or cost nothing.
LISTED = frozenset(
    [
        *("eks", "elasticloadbalancing", "cloudformation", ECR),
        *("ec2:vpc", "ec2:internet-gateway", "ec2:subnet", "ec2:route-table", "ec2:network-interface"),
        *("ec2:security-group", "ec2:security-group-rule", "ec2:launch-template", "ec2:placement-group"),
        *("ec2:fleet", "ec2:spot-instances-request"),
    ]
)
# Types of ARNs of EC2 that cost, and are not searched by each of the tags -> kind, operation that lists, the list in
# its answer, its parameter of filters, and the filter of ids.
BY_ID: Mapping[str, tuple[Kind, str, str, str, str]] = {
    "elastic-ip": (Kind.ADDRESS, "DescribeAddresses", "Addresses", "Filters", "allocation-id"),
    "natgateway": (Kind.NAT, "DescribeNatGateways", "NatGateways", "Filter", "nat-gateway-id"),
    "vpc-endpoint": (Kind.ENDPOINT, "DescribeVpcEndpoints", "VpcEndpoints", "Filters", "vpc-endpoint-id"),
    "instance": (Kind.INSTANCE, "DescribeInstances", "Reservations", "Filters", "instance-id"),
    "volume": (Kind.VOLUME, "DescribeVolumes", "Volumes", "Filters", "volume-id"),
    "snapshot": (Kind.SNAPSHOT, "DescribeSnapshots", "Snapshots", "Filters", "snapshot-id"),
}
ENDING = ("shutting-down", "terminated")
Answers = Mapping[Any, list[Any] | GpuctlError]


@dataclass
class Leftovers:
    """Objects that were listed, and the error of each kind that was not. `unassigned`: ids of snapshots that no tag or
    volume assigns to a cluster."""

    objects: list[Object] = field(default_factory=list)
    unread: dict[Kind, GpuctlError] = field(default_factory=dict)
    unassigned: set[str] = field(default_factory=set)


def read(
    aws: Aws, cluster: str, kinds: Collection[Kind], near: Collection[Object], listed: Collection[str]
) -> Leftovers:
    """Leftovers of some kinds. `near`: nodes of the cluster and volumes of its claims, by which snapshots are known.
    `listed`: ids of all objects that are known already."""
    volumes = [one.name for one in near if one.kind is Kind.VOLUME]
    requests = {key: one for key, one in _requests(cluster, volumes, kinds).items() if key[0] in kinds}
    answers = aws.read_all(requests, lambda row: row) if requests else {}
    found = Leftovers()
    finders: Mapping[Kind, Callable[[list[Any]], list[Any]]] = {
        Kind.LOG_GROUP: lambda rows: rows,
        Kind.TARGET_GROUP: lambda rows: _with_tags(aws, rows),
        Kind.STACK: lambda rows: [row for row in rows if _is_stack_of(row, cluster)],
        Kind.REPOSITORY: lambda rows: _repositories(aws, rows),
        Kind.OTHER: lambda rows: _others(aws, cluster, rows, {*listed, *(one.name for one in found.objects)}),
    }
    for kind in (one for one in KINDS if one in kinds):
        try:
            rows = _rows(answers, kind)
            if kind is Kind.SNAPSHOT:
                _add_snapshots(aws, cluster, rows, near, found)
                continue
            objects = [from_answer(kind, row, cluster, aws.region) for row in finders[kind](rows)]
        except GpuctlError as error:
            found.unread[kind] = error
            continue
        found.objects += [one for one in objects if kind is not Kind.TARGET_GROUP or removal.belongs(one, cluster)]
    return found


def _requests(cluster: str, volumes: Sequence[str], kinds: Collection[Kind]) -> dict[tuple[Kind, Any], Request]:
    requests: dict[tuple[Kind, Any], Request] = {}
    for prefix in LOGS:
        parameters: dict[str, Any] = {"logGroupNamePrefix": prefix.format(cluster)}
        of_prefix = ("list log groups", "logs", "DescribeLogGroups", "logGroups", parameters)
        requests[Kind.LOG_GROUP, prefix] = Request(*of_prefix)
    requests[Kind.TARGET_GROUP, 0] = Request("list target groups", "elbv2", "DescribeTargetGroups", "TargetGroups")
    requests[Kind.STACK, 0] = Request("list CloudFormation stacks", "cloudformation", "DescribeStacks", "Stacks")
    tags = {
        CLUSTER: cluster,
        NODE_TAG.format(cluster): "owned",
        BALANCER_TAG: cluster,
        GROUP_CLUSTER_TAG: cluster,
        EKS_TAG: cluster,
        EKSCTL_TAG: cluster,
        KARPENTER_TAG: cluster,
    }
    for key, value in tags.items():
        tag = {"TagFilters": [{"Key": key, "Values": [value]}]}
        listing = ("resourcegroupstaggingapi", "GetResources", "ResourceTagMappingList")
        requests[Kind.OTHER, key] = Request("list resources by tag", *listing, tag)
    repositories = {**requests[Kind.OTHER, CLUSTER].parameters, "ResourceTypeFilters": [ECR]}
    requests[Kind.REPOSITORY, 0] = Request("list ECR repositories by tag", *listing, repositories)
    filters = [
        *({"Name": "tag-key", "Values": [key]} for key in (NODE_TAG.format(cluster), CSI_TAG)),
        states.filter_tag(cluster),
        *({"Name": "volume-id", "Values": list(several)} for several in _parts(volumes, IDS_AT_ONCE)),
    ]
    for number, one in enumerate(filters):
        mine = {"OwnerIds": ["self"], "Filters": [one]}
        requests[Kind.SNAPSHOT, number] = Request("list snapshots", "ec2", "DescribeSnapshots", "Snapshots", mine)
    return requests


def _parts(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Names in groups that fit into one request."""
    return (names[start : start + size] for start in range(0, len(names), size))


def _rows(answers: Answers, kind: Kind) -> list[Any]:
    """Rows of all requests for a kind; raises the first error of one."""
    rows = []
    for answer in (one for key, one in answers.items() if key[0] is kind):
        if isinstance(answer, GpuctlError):
            raise answer
        rows += answer
    return rows


def _with_tags(aws: Aws, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Target groups with their tags; those that are gone meanwhile are left out."""
    by_arn = {str(row["TargetGroupArn"]): row for row in rows}
    request = Request("read the tags of target groups", "elbv2", "DescribeTags", "TagDescriptions")
    tags = states.described_in_parts(aws, request, "ResourceArns", list(by_arn), TAGS_AT_ONCE)
    return [{**by_arn[str(one["ResourceArn"])], "Tags": one.get("Tags") or ()} for one in tags]


def _is_stack_of(row: Mapping[str, Any], cluster: str) -> bool:
    """True for a stack of the cluster by its tags, or, without that of eksctl, by the name that eksctl gives it: by its
    name alone, eksctl-a-addon-b-cluster is of the cluster a and of a-addon-b."""
    tags = tag_mapping(row)
    if EKSCTL_TAG in tags:
        return tags[EKSCTL_TAG] == cluster
    is_tagged = tags.get(CLUSTER) == cluster or tags.get(NODE_TAG.format(cluster)) == "owned"
    return is_tagged or bool(re.fullmatch(STACKS_OF_EKSCTL.format(re.escape(cluster)), str(row["StackName"])))


def _repositories(aws: Aws, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Repositories that exist: AWS lists by tag for some time what is gone."""
    tags = {str(row["ResourceARN"]).partition(":repository/")[2]: row.get("Tags") or () for row in rows}
    requests = {}
    for name in tags:
        request = ("ecr", "DescribeRepositories", "repositories", {"repositoryNames": [name]})
        requests[name] = Request(f"read the repository {name}", *request)
    answers = states.described(aws, requests)
    return [{**row, "Tags": tags[name]} for name, several in answers.items() for row in several]


def _others(
    aws: Aws, cluster: str, rows: Sequence[Mapping[str, Any]], listed: Collection[str]
) -> list[Mapping[str, Any]]:
    """Rows of what no listing of its service names, and of what none has shown to be gone."""
    left, by_type = list[Mapping[str, Any]](), dict[str, dict[str, Mapping[str, Any]]]()
    for row in rows:
        type_of, name = _type_and_name(str(row["ResourceARN"]))
        service, _, of_ec2 = type_of.partition(":")
        if service == "ec2" and of_ec2 in BY_ID:
            if name not in listed:
                by_type.setdefault(of_ec2, {})[name] = row
        elif not {service, type_of} & LISTED:
            left.append(row)
    requests = {
        (of_ec2, part): _by_id(of_ec2, part)
        for of_ec2, several in by_type.items()
        for part in map(tuple, _parts(list(several), IDS_AT_ONCE))
    }
    for (of_ec2, part), answer in (aws.read_all(requests, lambda one: one) if requests else {}).items():
        if isinstance(answer, GpuctlError):  # one that is absent has an error, too, where AWS takes no unknown id
            names = () if states.is_absent(answer) else part
        else:
            kind = BY_ID[of_ec2][0]
            objects = [from_answer(kind, one, cluster, aws.region) for one in flat(kind, answer)]
            names = tuple(one.name for one in objects if counts(one) and one.state != "failed")
        left += [by_type[of_ec2][name] for name in names if name in by_type[of_ec2]]
    return left


def _by_id(of_ec2: str, names: Sequence[str]) -> Request:
    kind, operation, items, parameter, name = BY_ID[of_ec2]
    return Request(f"list {kind}s", "ec2", operation, items, {parameter: [{"Name": name, "Values": list(names)}]})


def _type_and_name(arn: str) -> tuple[str, str]:
    """Such as ec2:volume and vol-1 of an ARN, which is arn:PARTITION:SERVICE:REGION:ACCOUNT:TYPE/NAME."""
    parts = arn.split(":", 5)
    if len(parts) != 6:
        return "", ""
    type_of, _, name = parts[5].replace(":", "/").partition("/")
    return f"{parts[2]}:{type_of}", name


def flat(kind: Kind, rows: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    """Objects of the rows of AWS's answer, which has instances by reservation."""
    return (one for row in rows for one in row["Instances"]) if kind is Kind.INSTANCE else rows


def counts(one: Object) -> bool:
    """False for what goes with an instance or VPC, and for what is gone but still listed."""
    if one.kind is Kind.INSTANCE:
        return one.data.get("State", {}).get("Name") not in ENDING
    if one.kind is Kind.VOLUME:
        if one.state in ("deleting", "deleted"):
            return False
        return not any(attached.get("DeleteOnTermination") for attached in one.data.get("Attachments") or ())
    if one.kind is Kind.SECURITY_GROUP:
        return one.data.get("GroupName") != "default"
    return one.state not in ("deleted", "deleting") or one.kind not in (Kind.ENDPOINT, Kind.NAT)


# ---- snapshots -------------------------------------------------------------------------------------------------------


def _add_snapshots(
    aws: Aws, cluster: str, rows: Iterable[Mapping[str, Any]], near: Collection[Object], found: Leftovers
) -> None:
    """Snapshots with a tag of the cluster or of a volume of it; those of which nothing is known are unassigned."""
    listed = [from_answer(Kind.SNAPSHOT, row, cluster, aws.region) for row in rows]
    snapshots = {one.name: one for one in listed}.values()  # one filter may have what another has
    volumes = {one.name for one in near if one.kind is Kind.VOLUME}
    unsure = []
    for one in snapshots:
        if removal.is_tagged(one, cluster) or one.ours or one.data.get("VolumeId") in volumes:
            found.objects.append(one)
        elif CLUSTER not in one.tags and not any(key.startswith(NODE_TAG.format("")) for key in one.tags):
            unsure.append(one)
    others = _volumes_of_others(aws, unsure, near)
    unsure = [one for one in unsure if one.data.get("VolumeId") not in others]
    found.objects += unsure
    found.unassigned |= {one.name for one in unsure}


def _volumes_of_others(aws: Aws, snapshots: Sequence[Object], near: Collection[Object]) -> set[str]:
    """Ids of the snapshots' volumes that exist, and are of other clusters by a tag or an instance."""
    ids = sorted({str(one.data.get("VolumeId")) for one in snapshots})
    request = ("list volumes of snapshots", "ec2", "DescribeVolumes", "Volumes")
    requests = {
        several[0]: Request(*request, {"Filters": [{"Name": "volume-id", "Values": list(several)}]})
        for several in _parts(ids, IDS_AT_ONCE)
    }
    nodes = {one.name for one in near if one.kind is Kind.INSTANCE}
    others = set()
    for row in (row for several in states.described(aws, requests).values() for row in several):
        tags = tag_mapping(row)
        instances = {str(one.get("InstanceId")) for one in row.get("Attachments") or ()}
        is_tagged = CLUSTER in tags or any(key.startswith(NODE_TAG.format("")) for key in tags)
        if is_tagged or instances - nodes:
            others.add(str(row["VolumeId"]))
    return others
