"""What a removal takes away and what it leaves: by tags of ours, and by tags that Kubernetes' controllers set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, fail, ok, unknown, warn
from gpuctl.eks.objects import COSTLY, IN_CLUSTER, Kind, Object, State, costly

NODE_TAG, CNI_TAG, EKS_TAG = "kubernetes.io/cluster/{}", "cluster.k8s.amazonaws.com/name", "aws:eks:cluster-name"
BALANCER_TAG = "elbv2.k8s.aws/cluster"
CSI_TAG, CLAIM_TAG = "ebs.csi.aws.com/cluster", "kubernetes.io/created-for/pvc/name"  # neither names the cluster
GROUP_TAG, GROUP_CLUSTER_TAG = "eks:nodegroup-name", "eks:cluster-name"
EKSCTL_TAG, KARPENTER_TAG = "alpha.eksctl.io/cluster-name", "karpenter.k8s.aws/cluster"
# Kinds that go, in the order in which AWS lets them go.
ORDER = (
    *(Kind.GROUP, Kind.FARGATE, Kind.ADDON, Kind.ENTRY, Kind.CLUSTER, Kind.LOAD_BALANCER, Kind.TARGET_GROUP),
    *(Kind.INTERFACE, Kind.VOLUME, Kind.TEMPLATE, Kind.PLACEMENT, Kind.SECURITY_GROUP, Kind.NAT),
    *(Kind.ADDRESS, Kind.SUBNET, Kind.ROUTES, Kind.GATEWAY, Kind.VPC, Kind.SNAPSHOT, Kind.LOG_GROUP, Kind.ROLE),
)
MADE_BY_EKS = frozenset({Kind.ADDON, Kind.ENTRY, Kind.INTERFACE, Kind.LOG_GROUP})
# Made by controllers: their tag names a cluster, and an earlier one or one outside EKS may have had the same name.
IN_A_VPC = frozenset({Kind.LOAD_BALANCER, Kind.TARGET_GROUP, Kind.SECURITY_GROUP})
STARTS: Mapping[Kind, str] = {Kind.VOLUME: "CreateTime", Kind.SNAPSHOT: "StartTime"}  # they go only by choice
DELETE, KEEP = "delete", "keep"
# Kinds that a login may not be allowed to list -> the actions that list them.
RIGHTS: Mapping[Kind, str] = {
    Kind.LOG_GROUP: "logs:DescribeLogGroups",
    Kind.TARGET_GROUP: "elasticloadbalancing:DescribeTargetGroups",
    Kind.SNAPSHOT: "ec2:DescribeSnapshots",
    Kind.STACK: "cloudformation:DescribeStacks",
    Kind.REPOSITORY: "tag:GetResources and ecr:DescribeRepositories",
    Kind.OTHER: "tag:GetResources",
}
MAY_COST = frozenset({*COSTLY, Kind.STACK, Kind.OTHER})


@dataclass(frozen=True)
class Choice:
    """Choices of the user on what outlives a cluster. Each: delete, keep, or "" for not chosen."""

    volumes: str = ""
    logs: str = ""
    snapshots: str = ""


@dataclass(frozen=True)
class Row:
    """An object and its fate. `why`: for one that stays, or that gpuctl did not make. `is_inside`: a controller of this
    very cluster of ours made it, by its VPC or by its time, so that it goes with the cluster."""

    item: Object
    goes: bool
    why: str = ""
    is_inside: bool = False

    def __str__(self) -> str:
        return f"{'goes' if self.goes else 'stays'}   {self.item}" + (f": {self.why}" if self.why else "")

    @property
    def is_foreign(self) -> bool:
        """True if it goes and somebody else made it, so that the name must be confirmed."""
        is_made_with_it = self.is_inside or self.item.kind in MADE_BY_EKS or _of_eks(self.item)
        return self.goes and not self.item.ours and not is_made_with_it


def _goes(item: Object, why: str = "") -> Row:
    return Row(item, goes=True, why=why)


def _stays(item: Object, why: str) -> Row:
    return Row(item, goes=False, why=why)


def _of_eks(item: Object) -> bool:
    """True for the security group that EKS makes with a cluster."""
    return item.kind is Kind.SECURITY_GROUP and EKS_TAG in item.tags


@dataclass(frozen=True)
class Belongings:
    """Objects around a cluster that do not have our tags. `owners`: interface -> its owner, in words. `leaked`: ids of
    interfaces that the VPC CNI left behind, with every sign of it. `unassigned`: ids of volumes and snapshots that no
    tag, node or volume assigns to a cluster. `named_by`: id of a security group that goes -> others whose rules name
    it. `unread`: kind -> the error that kept it from being listed."""

    objects: Sequence[Object] = ()
    owners: dict[str, str] = field(default_factory=dict)
    leaked: frozenset[str] = frozenset()
    unassigned: frozenset[str] = frozenset()
    named_by: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unread: Mapping[Kind, GpuctlError] = field(default_factory=dict)

    def of(self, kind: Kind) -> list[Object]:
        return [one for one in self.objects if one.kind is kind]


def belongs(item: Object, cluster: str) -> bool:
    """True if a controller of the cluster made the object, by its tags."""
    owner = item.tags.get(NODE_TAG.format(cluster))
    return cluster in (item.tags.get(BALANCER_TAG), item.tags.get(EKS_TAG)) or owner == "owned"


def is_claims(item: Object) -> bool:
    """True for a volume that Kubernetes made for a claim; one that only has our tag is the disk of a node."""
    return not item.ours or has_claim_tag(item)


def has_claim_tag(item: Object) -> bool:
    return CSI_TAG in item.tags or CLAIM_TAG in item.tags


def is_tagged(item: Object, cluster: str) -> bool:
    """True if a tag of Kubernetes names the cluster."""
    return NODE_TAG.format(cluster) in item.tags


def claims(around: Belongings) -> list[Object]:
    """Volumes of the cluster's claims, by a tag of the cluster or by the node to which they are attached."""
    return [one for one in around.of(Kind.VOLUME) if one.name not in around.unassigned and is_claims(one)]


def snapshots(around: Belongings) -> list[Object]:
    """Snapshots of volumes of the cluster's claims."""
    return [one for one in around.of(Kind.SNAPSHOT) if one.name not in around.unassigned]


def unmanaged(state: State, around: Belongings) -> list[Object]:
    """Instances of the cluster, or in our VPC, that no node group of the cluster takes along."""
    groups = {one.name for one in state.of(Kind.GROUP)}

    def is_managed(tags: Mapping[str, str]) -> bool:
        group, cluster = tags.get(GROUP_TAG), tags.get(GROUP_CLUSTER_TAG)
        return group is not None and (cluster == state.cluster or (cluster is None and group in groups))

    return [one for one in around.of(Kind.INSTANCE) if not is_managed(one.tags)]


def rows(state: State, around: Belongings, choice: Choice) -> list[Row]:
    """Fate of every object, in the order of the removal; then those that stay."""
    own_vpc = bool(state.of(Kind.VPC))
    fates = [_of_ours(one, state) for one in state.objects]
    for one in around.objects:
        if any(one.name == row.item.name and one.kind is row.item.kind for row in fates):
            continue
        fates.append(_around(one, state.cluster, around, choice, own_vpc))
    fates = [replace(row, is_inside=is_inside(row.item, state)) for row in fates]
    return sorted(fates, key=lambda row: (not row.goes, _place(row.item)))


def is_inside(item: Object, state: State) -> bool:
    """True for what a controller made in a VPC of ours, or since the cluster of ours exists: a tag names no more than
    a name, which an earlier cluster or one outside EKS may have had."""
    clusters = [one for one in state.of(Kind.CLUSTER) if one.ours]
    if item.kind in IN_A_VPC:
        vpcs = {one.name for one in state.of(Kind.VPC) if one.ours}
        vpcs |= {str(one.data.get("resourcesVpcConfig", {}).get("vpcId") or "") for one in clusters}
        return str(item.data.get("VpcId") or item.data.get("VPCId") or None) in vpcs
    if item.kind not in STARTS:
        return False
    start = _time(item.data.get(STARTS[item.kind]))
    made = [_time(one.data.get("createdAt")) for one in clusters]
    return start is not None and any(one is not None and start >= one for one in made)


def _time(answer: Any) -> datetime | None:
    """A time of AWS's answers, which without a zone is UTC; None for none."""
    if isinstance(answer, str):
        try:
            answer = datetime.fromisoformat(answer)
        except ValueError:
            return None
    if not isinstance(answer, datetime):
        return None
    return answer if answer.tzinfo is not None else answer.replace(tzinfo=UTC)


def _place(item: Object) -> tuple[int, int]:
    is_last = item.kind is Kind.ROLE and item.part == "cluster"
    return (ORDER.index(item.kind) if item.kind in ORDER else len(ORDER), int(is_last))


def _of_ours(item: Object, state: State) -> Row:
    if item.ours:
        return _goes(item)
    if item.kind in (*IN_CLUSTER, Kind.CLUSTER):
        return _goes(item, "" if item.kind in MADE_BY_EKS else "not made by gpuctl")
    return _stays(item, f"it has no tag of {state.cluster} in {state.region}")


def _volume(item: Object, cluster: str, around: Belongings, volumes: str) -> Row:
    if item.name in around.unassigned:
        return _stays(item, f"UNKNOWN whether it is of {cluster}")
    if not is_claims(item):
        return _goes(item)
    why = "" if volumes == "delete" else "--volumes keep" if volumes == "keep" else "no --volumes"
    return Row(item, volumes == "delete", why or "made by Kubernetes for a claim")


def _log_group(item: Object, logs: str) -> Row:
    """A log group of EKS, which outlives its cluster. It goes only by choice: it may be needed after a failure."""
    if logs == DELETE:
        return _goes(item, "made by EKS" if item.name.startswith("/aws/eks/") else "made by Container Insights")
    return _stays(item, f"{'--logs keep' if logs == KEEP else 'no --logs'}; {_stored(item)}, cost UNKNOWN")


def _stored(item: Object) -> str:
    size = item.data.get("storedBytes")
    return "stored bytes UNKNOWN" if size is None else f"{int(size) / 2**20:.1f} MiB stored"


def _snapshot(item: Object, cluster: str, around: Belongings, choice: str) -> Row:
    if item.name in around.unassigned:
        return _stays(item, f"UNKNOWN whether it is of {cluster}")
    why = "of a volume of its claims" if choice == DELETE else f"--snapshots {KEEP}" if choice == KEEP else ""
    return Row(item, choice == DELETE, why or "no --snapshots")


# Kinds that destroy never removes -> the reason.
NEVER: Mapping[Kind, str] = {
    Kind.REPOSITORY: "its images may be in use elsewhere; cost UNKNOWN",
    Kind.STACK: "CloudFormation removes it, with what it made: `aws cloudformation delete-stack`",
    Kind.OTHER: "it has a tag of the cluster, and its kind is not one that gpuctl removes; cost UNKNOWN",
    Kind.TEMPLATE: "made by EKS or Karpenter; costs nothing",
    Kind.INSTANCE: "goes with its node group, or is not managed by EKS",
}


def _around(item: Object, cluster: str, around: Belongings, choice: Choice, own_vpc: bool) -> Row:
    by_choice: Mapping[Kind, Callable[[], Row]] = {
        Kind.LOG_GROUP: lambda: _log_group(item, choice.logs),
        Kind.VOLUME: lambda: _volume(item, cluster, around, choice.volumes),
        Kind.SNAPSHOT: lambda: _snapshot(item, cluster, around, choice.snapshots),
        Kind.INTERFACE: lambda: _interface(item, around),
    }
    if item.kind in by_choice:
        return by_choice[item.kind]()
    if item.kind in NEVER:
        return _stays(item, NEVER[item.kind])
    if item.kind in (Kind.LOAD_BALANCER, Kind.TARGET_GROUP, Kind.SECURITY_GROUP) and belongs(item, cluster):
        return _goes(item, "made by EKS" if _of_eks(item) else "made by a controller of the cluster")
    return _stays(item, "not made by gpuctl" + (", and in the VPC that is to go" if own_vpc else ""))


def _interface(item: Object, around: Belongings) -> Row:
    if item.name in around.leaked:
        return _goes(item, "left behind by the VPC CNI")
    return _stays(item, f"{around.owners.get(item.name, 'owner UNKNOWN')}; goes with its owner")


def obstacles(state: State, around: Belongings, choice: Choice) -> list[Finding]:
    """Causes for which a removal does not begin."""
    found = []
    for one in state.of(Kind.CLUSTER):
        if one.data.get("deletionProtection"):
            hint = "switch it off yourself: `aws eks update-cluster-config --name NAME --no-deletion-protection`"
            found.append(fail("protection", one.name, "deletion protection is on", hint))
    balancers = [one for one in around.of(Kind.LOAD_BALANCER) if belongs(one, state.cluster)]
    found += [protected(one) for one in balancers if one.data.get("Protected")]
    for one in unmanaged(state, around):
        message = f"no node group of the cluster takes {one} ({_described(one)}) along: it would run on, and cost"
        found.append(
            fail("instance", one.name, message, "terminate it: delete its Karpenter node pool or its own group")
        )
    disks = claims(around)
    if disks and not choice.volumes:
        size = sum(int(one.data.get("Size") or 0) for one in disks)
        message = (
            f"{len(disks)} volumes ({size} GiB) of its claims would stay, and cost: {named(one.name for one in disks)}"
        )
        found.append(fail("volumes", state.cluster, message, "add `--volumes delete` or `--volumes keep`"))
    copies = snapshots(around)
    if copies and not choice.snapshots:
        message = (
            f"{plural(len(copies), 'snapshot')} of its claims would stay, and cost: {named(one.name for one in copies)}"
        )
        found.append(fail("snapshots", state.cluster, message, "add `--snapshots delete` or `--snapshots keep`"))
    if disks and choice.volumes == DELETE and choice.snapshots != KEEP and Kind.SNAPSHOT in around.unread:
        message = f"snapshots are known by volumes that would go, and were not listed: {around.unread[Kind.SNAPSHOT]}"
        hint = f"run this again, allow `{RIGHTS[Kind.SNAPSHOT]}`, or add `--snapshots keep`"
        found.append(fail("snapshots", state.cluster, message, hint))
    return found


def protected(balancer: Object) -> Finding:
    """AWS refuses to delete a load balancer with deletion protection."""
    hint = "switch it off: `aws elbv2 modify-load-balancer-attributes`, key deletion_protection.enabled"
    return fail("protection", balancer.name, f"{balancer}: deletion protection is on", hint)


def _described(instance: Object) -> str:
    group = instance.tags.get("karpenter.sh/nodepool") or instance.tags.get("aws:autoscaling:groupName")
    parts = [str(instance.data.get("InstanceType") or ""), instance.tags.get("Name", ""), group or ""]
    return ", ".join(filter(None, parts)) or "without a name"


def foreigners(state: State, around: Belongings) -> list[Finding]:
    """Warnings on objects of others in a VPC of ours: the VPC stays as long as they do."""
    if not any(one.ours for one in state.of(Kind.VPC)):
        return []
    found = []
    for one in around.objects:
        is_interface = one.kind is Kind.INTERFACE and _blocks(one, around, state.cluster)
        other = one.kind in (Kind.LOAD_BALANCER, Kind.ENDPOINT, Kind.SECURITY_GROUP, Kind.NAT) and not one.ours
        if is_interface or (other and not belongs(one, state.cluster)):
            owner = (
                around.owners.get(one.name) or one.data.get("GroupName") or one.data.get("ServiceName") or "not ours"
            )
            message = f"{one} ({owner}) is in the VPC, and keeps it from going"
            found.append(warn("foreign", one.name, message, "remove it, or have its owner remove it"))
    return found


# Owners of interfaces that go with the nodes, or that another step or finding is about.
GO_BY_THEMSELVES = ("node ", "CNI", "pod", "NAT", "load balancer", "endpoint")


def _blocks(item: Object, around: Belongings, cluster: str) -> bool:
    """True for an interface that no step of the removal takes away, such as one of Lambda or of another cluster."""
    owner = around.owners.get(item.name, "")
    goes = owner.startswith(GO_BY_THEMSELVES) or owner == f"EKS control plane {cluster}"
    return not goes and item.name not in around.leaked


def is_of(item: Object, around: Belongings, cluster: str) -> bool:
    """True for an object around a cluster that is the cluster's."""
    if item.kind in (Kind.VOLUME, Kind.SNAPSHOT):
        return item.name not in around.unassigned
    is_only_listed_if_of_it = item.kind in (*NEVER, Kind.LOG_GROUP)
    return is_only_listed_if_of_it or belongs(item, cluster) or item.name in around.leaked


def remaining(state: State, around: Belongings, choice: Choice) -> list[Finding]:
    """Findings on what a search by tag, owner and name still finds: a failure for what costs money."""
    left = [one for one in state.objects if one.ours or one.kind is Kind.CLUSTER]
    left += [one for one in around.objects if is_of(one, around, state.cluster)]
    left = list({(one.kind, one.name): one for one in left}.values())
    findings = list(_remaining(left, choice))
    for one in sorted(around.unassigned):
        kind = "snapshot" if one.startswith("snap-") else "volume"
        message = f"{kind} {one} costs money, and nothing says whether it is of {state.cluster}"
        hint = f"look whose it is: `aws ec2 describe-{kind}s --{kind}-ids {one}`"
        findings.append(unknown(f"{kind}s", one, message, hint))
    findings += unsearched(around, state.cluster)
    return findings or [ok("remains", state.cluster, "a search by tag and owner finds nothing")]


def unsearched(around: Belongings, cluster: str) -> list[Finding]:
    """UNKNOWN for each kind that could not be listed: objects of it stay, and may cost."""
    findings = []
    for kind, error in around.unread.items():
        message = f"{named_kind(kind)} of {cluster} were not searched: {error}"
        hint = f"run `gpuctl eks destroy` again, which lists those that stay; it needs `{RIGHTS[kind]}`"
        findings.append(unknown("logs" if kind is Kind.LOG_GROUP else "remains", cluster, message, hint))
    return findings


def named_kind(kind: Kind) -> str:
    """Name of several objects of a kind."""
    return "ECR repositories" if kind is Kind.REPOSITORY else f"{kind}s"


def _remaining(left: Sequence[Object], choice: Choice) -> Iterator[Finding]:
    expensive = set(map(id, costly(left)))
    for one in left:
        if one.kind is Kind.ROLE and one.part == "cluster":
            continue  # it is the last to go
        if one.kind is Kind.NAT and one.state == "failed":
            continue  # it costs nothing, and AWS removes it by itself
        cost = ", and costs money" if id(one) in expensive else ""
        again = fail("remains", one.name, f"{one} is left{cost}", "remove the cause, and run this again")
        yield _kept(one, choice) or _of_others(one) or again


def _kept(item: Object, choice: Choice) -> Finding | None:
    """A warning on what the user kept; None for anything else."""
    is_kept = item.kind is Kind.VOLUME and is_claims(item) and choice.volumes == KEEP
    if is_kept or (item.kind is Kind.SNAPSHOT and choice.snapshots == KEEP):
        return warn("remains", item.name, f"{item} was to be kept, and costs money", f"remove it: {_command(item)}")
    if item.kind is Kind.LOG_GROUP and choice.logs != DELETE:
        message = f"{item} stays ({_stored(item)}), and costs an amount that is UNKNOWN"
        return warn("remains", item.name, message, "run this again with `--logs delete` to remove it")
    return None


def _of_others(item: Object) -> Finding | None:
    """A finding on what destroy never removes; None for anything else."""
    rows: Mapping[Kind, tuple[Callable[..., Finding], str]] = {
        Kind.REPOSITORY: (warn, "stays with its images, and costs an amount that is UNKNOWN"),
        Kind.TEMPLATE: (warn, "is left, and costs nothing"),
        Kind.STACK: (fail, f"is left ({item.state}), and what it made may cost money"),
    }
    if item.kind is Kind.OTHER:
        message = f"{item} is left, or was until lately; whether it costs money is UNKNOWN"
        return unknown("remains", item.name, message, "remove it; AWS lists by tag for some hours what is gone")
    if item.kind not in rows or (item.kind is Kind.TEMPLATE and item.ours):
        return None
    finding, text = rows[item.kind]
    return finding("remains", item.name, f"{item} {text}", f"remove it: {_command(item)}")


# Kind -> command of AWS that removes an object of it, without its name.
COMMANDS: Mapping[Kind, str] = {
    Kind.VOLUME: "aws ec2 delete-volume --volume-id",
    Kind.SNAPSHOT: "aws ec2 delete-snapshot --snapshot-id",
    Kind.TEMPLATE: "aws ec2 delete-launch-template --launch-template-id",
    Kind.REPOSITORY: "aws ecr delete-repository --force --repository-name",
    Kind.STACK: "aws cloudformation delete-stack --stack-name",
}


def _command(item: Object) -> str:
    return f"`{COMMANDS[item.kind]} {item.name}`"


def sum_of(fates: Sequence[Row]) -> tuple[int, int, int]:
    """Objects that go, that stay, and of these the ones that cost money."""
    goes = [one for one in fates if one.goes]
    stays = [one for one in fates if not one.goes]
    return len(goes), len(stays), sum(one.item.kind in COSTLY for one in stays)


def references(around: Belongings) -> list[Finding]:
    """Warnings on rules in security groups of others that name a group that is to go, and keep it from going."""
    hint = "have their owner revoke the rule: `aws ec2 revoke-security-group-ingress` or `-egress`"
    return [
        warn("foreign", name, f"security group {name} is named by rules of {named(others)}, and stays with them", hint)
        for name, others in sorted(around.named_by.items())
    ]


def permissions(answer: Any) -> list[dict[str, Any]]:
    """Rules of a security group that name another group: these keep the other one from being deleted."""
    return [
        {
            **{key: one[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in one},
            "UserIdGroupPairs": [{"GroupId": pair["GroupId"]} for pair in one["UserIdGroupPairs"]],
        }
        for one in answer or ()
        if one.get("UserIdGroupPairs")
    ]
