"""Remove a cluster in the order that finishes; each step can be repeated. A search for what remains ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, fail
from gpuctl.edges.aws import Aws, NoAnswer, Request, code_of
from gpuctl.eks import health, removal
from gpuctl.eks import state as states
from gpuctl.eks.objects import CLUSTER, REGION, ROLE_PATH, Kind, Object, State, tag_list
from gpuctl.eks.removal import Belongings, Row
from gpuctl.eks.wait import (
    BALANCERS_DOWN,
    CLUSTER_DOWN,
    FARGATE_DOWN,
    FREED,
    GROUPS_DOWN,
    NAT_DOWN,
    TimeUp,
    Wait,
    Waiter,
)

ATTEMPTS = 4
MARKED_AT_ONCE = 500  # objects of one request, by AWS: 1,000
BUSY = ("DependencyViolation", "InUse")  # parts of codes: something holds the object
# Kind -> operation of EC2 that deletes it, and its parameter.
DELETE: Mapping[Kind, tuple[str, str]] = {
    Kind.INTERFACE: ("DeleteNetworkInterface", "NetworkInterfaceId"),
    Kind.VOLUME: ("DeleteVolume", "VolumeId"),
    Kind.TEMPLATE: ("DeleteLaunchTemplate", "LaunchTemplateId"),
    Kind.PLACEMENT: ("DeletePlacementGroup", "GroupName"),
    Kind.SECURITY_GROUP: ("DeleteSecurityGroup", "GroupId"),
    Kind.NAT: ("DeleteNatGateway", "NatGatewayId"),
    Kind.ADDRESS: ("ReleaseAddress", "AllocationId"),
    Kind.SUBNET: ("DeleteSubnet", "SubnetId"),
    Kind.ROUTES: ("DeleteRouteTable", "RouteTableId"),
    Kind.GATEWAY: ("DeleteInternetGateway", "InternetGatewayId"),
    Kind.VPC: ("DeleteVpc", "VpcId"),
}
IN_VPC = (Kind.SECURITY_GROUP, Kind.SUBNET, Kind.ROUTES, Kind.GATEWAY, Kind.VPC)
Look = Callable[..., Belongings]  # of a login, a state, and kinds (all by default)


@dataclass(frozen=True)
class Choice:
    """Choices of the user. `volumes`: delete, keep, or "" for not chosen."""

    volumes: str = ""


@dataclass
class Remover:
    """One run of a removal."""

    aws: Aws
    state: State
    look: Look
    choice: Choice
    waiter: Waiter
    foreign: bool = False  # somebody else's objects are in the VPC: waiting for it is of no use
    findings: list[Finding] = field(default_factory=list)
    wait_s: float = FREED.limit_s  # left for objects that something holds
    unassigned: frozenset[str] = frozenset()  # volumes of which nobody knows whether they are of the cluster

    def act(self, doing: str, service: str, operation: str, parameters: Mapping[str, Any]) -> bool:
        """Send a deletion; False if it was deleted already."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.aws.act(Request(doing, service, operation, "", parameters))
                return True
            except NoAnswer:
                if attempt == ATTEMPTS:
                    raise
                self.waiter.sleep(self.waiter.every_s)
            except GpuctlError as error:
                if states.is_absent(error):
                    return False
                raise
        raise AssertionError("unreachable")

    def delete(self, item: Object) -> None:
        """Delete an object of EC2; while something holds it, wait. What holds it at the end is a finding."""
        operation, parameter = DELETE[item.kind]

        def poll() -> tuple[bool | None, str]:
            try:
                self.act(f"delete the {item}", "ec2", operation, {parameter: item.name})
            except GpuctlError as error:
                if not any(code in code_of(error) for code in BUSY):
                    raise
                last.append(error)
                if self.foreign and item.kind in IN_VPC:
                    return False, ""
                return None, f"in use ({item})"
            return True, ""

        last: list[GpuctlError] = []
        if self.freed(poll):
            self.waiter.progress(f"deleted {item}")
            return
        holders = named(self.holders(item)) or "AWS does not name what holds it"
        message = f"{item} cannot be deleted: {last[-1].wrong}; {holders}"
        self.findings.append(fail("in-use", item.name, message, "remove what holds it, and run this again"))

    def freed(self, poll: Callable[[], tuple[bool | None, str]]) -> bool:
        """Wait until an object is let go; all objects of a run share one limit, as one cause often holds many."""
        value, text = poll()
        if value is not None:
            return value
        first, start = [(value, text)], self.waiter.clock()
        try:
            return self.waiter.until(replace(FREED, limit_s=self.wait_s), lambda: first.pop() if first else poll())
        except TimeUp:
            return False
        finally:
            self.wait_s = max(0.0, self.wait_s - (self.waiter.clock() - start))

    def holders(self, item: Object) -> list[str]:
        """Interfaces that hold an object, with their owners."""
        names = {Kind.SECURITY_GROUP: "group-id", Kind.SUBNET: "subnet-id", Kind.VPC: "vpc-id"}
        if item.kind not in names:
            return []
        filters = [{"Name": names[item.kind], "Values": [item.name]}]
        listing = ("ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", {"Filters": filters})
        rows = self.aws.read(Request("list network interfaces", *listing), lambda answer: answer)
        return [f"{one['NetworkInterfaceId']} ({one.get('Description') or 'no description'})" for one in rows]

    def gone(self, wait: Wait, kind: Kind) -> None:
        """Wait until objects inside the cluster are gone; a failed deletion ends it with its cause."""

        def poll() -> tuple[bool | None, str]:
            left = states.in_cluster(self.aws, self.state, [kind])
            for one in left:
                found = health.issues(one.data)
                for issue in found:
                    action = health.hint(issue)
                    self.waiter.once(f"{one}: {issue}" + (f"; {action}" if action else ""))
                if one.state == "DELETE_FAILED":
                    wrong = "; ".join(map(str, found)) or "AWS names no reason"
                    raise GpuctlError(f"delete the {one}", wrong, "remove the cause, and run this again")
            return (True if not left else None), ", ".join(f"{one.name} {one.state}" for one in left)

        self.waiter.until(wait, poll)

    # ---- steps ----

    def mark(self, volumes: Sequence[Object]) -> None:
        """Tag volumes that only their node tells to be the cluster's: when it is gone, nothing else does."""
        marks = {CLUSTER: self.state.cluster, REGION: self.state.region}
        for start in range(0, len(volumes), MARKED_AT_ONCE):
            names = [one.name for one in volumes[start : start + MARKED_AT_ONCE]]
            parameters = {"Resources": names, "Tags": tag_list(marks)}
            self.act("tag the volumes of the cluster's claims", "ec2", "CreateTags", parameters)

    def workers(self) -> None:
        """Node groups together, then Fargate profiles one by one, as EKS deletes one at a time."""
        of_cluster = {"clusterName": self.state.cluster}
        groups = self.state.of(Kind.GROUP)
        for one in groups:
            if one.state != "DELETING":
                parameters = {**of_cluster, "nodegroupName": one.name}
                self.act(f"delete the node group {one.name}", "eks", "DeleteNodegroup", parameters)
        if groups:
            self.gone(GROUPS_DOWN, Kind.GROUP)
            self.waiter.progress(f"deleted {named(map(str, groups))}")
        for one in self.state.of(Kind.FARGATE):
            parameters = {**of_cluster, "fargateProfileName": one.name}
            if one.state != "DELETING":
                self.act(f"delete the Fargate profile {one.name}", "eks", "DeleteFargateProfile", parameters)
            self.one_gone(one)

    def one_gone(self, profile: Object) -> None:
        def poll() -> tuple[bool | None, str]:
            left = [one for one in states.in_cluster(self.aws, self.state, [Kind.FARGATE]) if one.name == profile.name]
            return (None, left[0].state) if left else (True, "")

        self.waiter.until(FARGATE_DOWN, poll)

    def control_plane(self) -> None:
        """The cluster, with its addons and access entries."""
        for one in self.state.of(Kind.CLUSTER):
            if one.state != "DELETING":
                self.act(f"delete the cluster {one.name}", "eks", "DeleteCluster", {"name": one.name})
            request = Request(f"read the cluster {one.name}", "eks", "DescribeCluster", "", {"name": one.name})

            def poll(request: Request = request) -> tuple[bool | None, str]:
                rows = states.described(self.aws, {"cluster": request})["cluster"]
                return (None, str(rows[0]["cluster"]["status"])) if rows else (True, "")

            self.waiter.until(CLUSTER_DOWN, poll)
            self.waiter.progress(f"deleted {one}")

    def interfaces(self) -> None:
        """Interfaces that the VPC CNI left behind; they appear as nodes end."""
        around = self.look(self.aws, self.state, [Kind.INTERFACE])
        for one in around.of(Kind.INTERFACE):
            if one.name in around.leaked:
                self.delete(one)

    def balancers(self, rows: Iterable[Row]) -> None:
        """Load balancers of Services and Ingresses: after the control plane, which would make them again."""
        names = []
        for row in rows:
            one = row.item
            arn = one.data.get("LoadBalancerArn")
            if arn:
                self.act(f"delete the {one}", "elbv2", "DeleteLoadBalancer", {"LoadBalancerArn": arn})
            else:
                self.act(f"delete the {one}", "elb", "DeleteLoadBalancer", {"LoadBalancerName": one.name})
            names.append(one.name)
        if not names:
            return

        def poll() -> tuple[bool | None, str]:
            around = self.look(self.aws, self.state, [Kind.LOAD_BALANCER, Kind.INTERFACE])
            left = [one.name for one in around.of(Kind.LOAD_BALANCER) if one.name in names]
            left += [
                one.name for one in around.of(Kind.INTERFACE) if _is_balancers(around.owners.get(one.name, ""), names)
            ]
            return (None, f"{len(left)} left") if left else (True, "")

        self.waiter.until(BALANCERS_DOWN, poll)

    def nat(self) -> None:
        """NAT gateways, until they have let go of their address."""
        gateways = self.state.of(Kind.NAT)
        for one in gateways:
            if one.state != "deleting":
                parameters = {"NatGatewayId": one.name}
                self.act(f"delete the {one}", "ec2", "DeleteNatGateway", parameters)

        def poll() -> tuple[bool | None, str]:
            requests = {
                one.name: Request(
                    *("read the NAT gateway", "ec2", "DescribeNatGateways", "NatGateways"),
                    {"NatGatewayIds": [one.name]},
                )
                for one in gateways
            }
            rows = [row for found in states.described(self.aws, requests).values() for row in found]
            left = [row for row in rows if row["State"] != "deleted"]
            return (None, left[0]["State"]) if left else (True, "")

        if gateways:
            self.waiter.until(NAT_DOWN, poll)
            self.waiter.progress(f"deleted {named(map(str, gateways))}")

    def security_groups(self, rows: Iterable[Row]) -> None:
        """First the rules that name other groups, so that no group holds another."""
        groups = [row.item for row in rows]
        for one in groups:
            for member, direction in (("IpPermissions", "Ingress"), ("IpPermissionsEgress", "Egress")):
                rules = removal.permissions(one.data.get(member))
                if rules:
                    parameters = {"GroupId": one.name, "IpPermissions": rules}
                    self.act(f"clear the rules of {one}", "ec2", f"RevokeSecurityGroup{direction}", parameters)
        for one in groups:
            self.delete(one)

    def role(self, role: Object) -> None:
        """A role, once its policies are detached; one with another policy or profile keeps its owner's name."""
        for policy in role.data.get("policies", ()):
            parameters = {"RoleName": role.name, "PolicyArn": policy}
            self.act(f"detach {policy} from {role}", "iam", "DetachRolePolicy", parameters)
        try:
            self.act(f"delete the {role}", "iam", "DeleteRole", {"RoleName": role.name})
            self.waiter.progress(f"deleted {role}")
        except GpuctlError as error:
            if code_of(error) != "DeleteConflict":
                raise
            hint = f"remove what uses it: `aws iam list-instance-profiles-for-role --role-name {role.name}`"
            self.findings.append(fail("in-use", role.name, f"{role} cannot be deleted: {error.wrong}", hint))

    def network(self, rows: Iterable[Row]) -> None:
        """The VPC and its parts, in the order of the rows."""
        for row in rows:
            for attached in row.item.data.get("Attachments") or () if row.item.kind is Kind.GATEWAY else ():
                self.detach(row.item, {"InternetGatewayId": row.item.name, "VpcId": attached["VpcId"]})
            self.delete(row.item)

    def detach(self, gateway: Object, parameters: Mapping[str, str]) -> None:
        try:
            self.act(f"detach the {gateway}", "ec2", "DetachInternetGateway", parameters)
        except GpuctlError as error:
            if code_of(error) != "Gateway.NotAttached":
                raise


def _is_balancers(owner: str, names: Iterable[str]) -> bool:
    return any(owner == f"load balancer {name}" for name in names)


def destroy(remover: Remover, around: Belongings) -> list[Finding]:
    """Remove everything that `removal.rows` names, and search for what remains."""
    state, choice = remover.state, remover.choice
    remover.unassigned = around.unassigned
    remover.foreign = bool(removal.foreigners(state, around))
    rows = [row for row in removal.rows(state, around, choice.volumes) if row.goes]

    def of(*kinds: Kind) -> list[Row]:
        return [row for row in rows if row.item.kind in kinds]

    remover.mark([one for one in removal.claims(around) if not one.ours and not removal.is_tagged(one, state.cluster)])
    remover.workers()
    remover.interfaces()
    remover.control_plane()
    remover.balancers(of(Kind.LOAD_BALANCER))
    for row in of(Kind.VOLUME, Kind.TEMPLATE, Kind.PLACEMENT):
        remover.delete(row.item)
    remover.interfaces()  # of nodes that ended last
    remover.security_groups(of(Kind.SECURITY_GROUP))
    remover.nat()
    remover.network(of(Kind.ADDRESS, Kind.SUBNET, Kind.ROUTES, Kind.GATEWAY, Kind.VPC))
    for row in of(Kind.ROLE):
        if row.item.part != "cluster":
            remover.role(row.item)
    return [*remover.findings, *_last(remover)]


def _last(remover: Remover) -> list[Finding]:
    """Search again; the first role goes only when nothing else is left, as it is the mark that something may be."""
    left = states.read(remover.aws, remover.state.cluster)
    around = remover.look(remover.aws, left)
    around = replace(around, unassigned=around.unassigned | remover.unassigned)
    findings = removal.remaining(left, around, remover.choice.volumes)
    first = left.first_role
    if first is not None and first.ours and all(one.verdict is not Verdict.FAIL for one in findings):
        remover.role(first)
    return findings


def clusters(aws: Aws) -> list[Mapping[str, Any]]:
    """First roles of all clusters of the account that gpuctl made, with their tags, of every region."""
    listing = Request("list the roles of clusters", "iam", "ListRoles", "Roles", {"PathPrefix": ROLE_PATH})
    roles = aws.read(listing, lambda answer: answer)
    requests = {
        one["RoleName"]: Request(
            f"read the tags of {one['RoleName']}", "iam", "ListRoleTags", "", {"RoleName": one["RoleName"]}
        )
        for one in roles
    }
    tags = states.described(aws, requests)
    return [{**one, "Tags": (tags[one["RoleName"]] or [{}])[0].get("Tags") or ()} for one in roles]
