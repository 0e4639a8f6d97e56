"""Steps of a removal: each deletes objects of some kinds, waits until they are gone, and can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail
from gpuctl.edges.aws import Aws, NoAnswer, Request, code_of
from gpuctl.eks import health, removal
from gpuctl.eks import state as states
from gpuctl.eks.objects import CLUSTER, REGION, Kind, Object, State, tag_list
from gpuctl.eks.removal import Belongings, Choice, Row
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
CHANGING = ("CREATING", "UPDATING", "PENDING")
SETTLED = Wait("EKS to take the deletion", "up to 15 min while it is made or changed", 45 * 60)
MARKED_AT_ONCE = 500  # objects of one request, by AWS: 1,000
BUSY = ("DependencyViolation", "InUse")  # parts of codes: something holds the object
# Kind -> operation of EC2 that deletes it, and its parameter.
DELETE: Mapping[Kind, tuple[str, str]] = {
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
WITH_INTERFACES = (Kind.SECURITY_GROUP, Kind.SUBNET)
MADE_BY_CONTROLLERS = (Kind.LOAD_BALANCER, Kind.TARGET_GROUP, Kind.SECURITY_GROUP)
IN_VPC = (Kind.SECURITY_GROUP, Kind.SUBNET, Kind.ROUTES, Kind.GATEWAY, Kind.VPC)
Look = Callable[..., Belongings]  # of a login, a state, and kinds (all by default)


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
    named_by: Mapping[str, Sequence[str]] = field(default_factory=dict)  # as in `Belongings`
    search_s: float = 60.0  # lists of AWS name for some time what is gone
    wait_s: float = FREED.limit_s  # left for objects that something holds
    unassigned: frozenset[str] = frozenset()  # volumes that no tag or node assigns to a cluster

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
        if self.when_free(item, "delete", operation, {parameter: item.name}):
            self.waiter.progress(f"deleted {item}")

    def when_free(self, item: Object, doing: str, operation: str, parameters: Mapping[str, str]) -> bool:
        """Delete or detach an object of EC2 as soon as nothing holds it; False, and a finding, if it is still held."""

        def poll() -> tuple[bool | None, str]:
            try:
                self.act(f"{doing} the {item}", "ec2", operation, parameters)
            except GpuctlError as error:
                if code_of(error) == "Gateway.NotAttached":
                    return True, ""
                if not _is_busy(error):
                    raise
                last.append(error)
                if item.name in self.named_by:
                    return False, ""  # a rule does not go by itself
                swept = item.kind in WITH_INTERFACES and self.sweep()
                if self.foreign and item.kind in IN_VPC and not swept:
                    return False, ""
                return None, f"in use ({item})"
            return True, ""

        last: list[GpuctlError] = []
        if self.freed(poll):
            return True
        holders = named([*self.named_by.get(item.name, ()), *self.holders(item)]) or "AWS does not name what holds it"
        message = f"cannot {doing} {item}: {last[-1].wrong}; {holders}"
        self.findings.append(fail("in-use", item.name, message, "remove what holds it, and run this again"))
        return False

    def sweep(self) -> bool:
        """Delete interfaces that the VPC CNI left behind, without waiting; True if one went."""
        went = False
        around = self.look(self.aws, self.state, [Kind.INTERFACE])
        for one in around.of(Kind.INTERFACE):
            if one.name in around.leaked:
                try:
                    self.act(f"delete the {one}", "ec2", "DeleteNetworkInterface", {"NetworkInterfaceId": one.name})
                    self.waiter.progress(f"deleted {one}")
                    went = True
                except GpuctlError as error:
                    if not _is_busy(error):
                        raise
        return went

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

    def gone(self, wait: Wait, kind: Kind, name: str = "") -> None:
        """Wait until objects inside the cluster are gone; a failed deletion ends it with its cause. `name`: of one."""

        def poll() -> tuple[bool | None, str]:
            left = [one for one in states.in_cluster(self.aws, self.state, [kind]) if name in ("", one.name)]
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

    def mark(self, items: Sequence[Object]) -> None:
        """Tag volumes that only their node assigns to the cluster, and snapshots that only their volume does."""
        for kind in (Kind.VOLUME, Kind.SNAPSHOT):
            names = [one.name for one in items if one.kind is kind]
            for start in range(0, len(names), MARKED_AT_ONCE):
                part = names[start : start + MARKED_AT_ONCE]
                if not self.marked(part):  # one of them is gone, and AWS has tagged none
                    for name in part:
                        self.marked([name])

    def marked(self, names: Sequence[str]) -> bool:
        """False if AWS tags none, as one is gone."""
        tags = tag_list({CLUSTER: self.state.cluster, REGION: self.state.region})
        parameters = {"Resources": list(names), "Tags": tags}
        return self.act("tag the volumes and snapshots of the cluster's claims", "ec2", "CreateTags", parameters)

    def workers(self) -> None:
        """Node groups together, then Fargate profiles one by one, as EKS deletes one at a time."""
        groups = self.state.of(Kind.GROUP)
        for one in sorted(groups, key=lambda group: group.state in CHANGING):  # those that can go do not wait
            self.begin(one, "DeleteNodegroup", self.inside(one, "nodegroupName"))
        if groups:
            self.gone(GROUPS_DOWN, Kind.GROUP)
            self.waiter.progress(f"deleted {named(map(str, groups))}")
        for one in self.state.of(Kind.FARGATE):
            self.begin(one, "DeleteFargateProfile", self.inside(one, "fargateProfileName"))
            self.gone(FARGATE_DOWN, Kind.FARGATE, one.name)

    def inside(self, item: Object, parameter: str) -> dict[str, str]:
        return {"clusterName": self.state.cluster, parameter: item.name}

    def begin(self, item: Object, operation: str, parameters: Mapping[str, str]) -> None:
        """Have EKS begin a deletion. It refuses while the object is made or changed: then wait, and ask again."""

        def poll() -> tuple[bool | None, str]:
            try:
                self.act(f"delete the {item}", "eks", operation, parameters)
            except GpuctlError as error:
                code = code_of(error)
                if code not in ("ResourceInUseException", "InvalidRequestException"):
                    raise
                now = self.now(item)
                if now in ("", "DELETING"):
                    return True, ""
                if code == "InvalidRequestException" and now not in CHANGING:
                    raise
                if item.kind is Kind.CLUSTER and states.in_cluster(self.aws, self.state, [Kind.GROUP, Kind.FARGATE]):
                    raise  # somebody has made one meanwhile
                return None, f"{item.name} {now}: {error.wrong}"
            return True, ""

        if item.state != "DELETING":
            self.waiter.until(SETTLED, poll)

    def now(self, item: Object) -> str:
        """State of the cluster, or of an object inside it; "" if it is gone."""
        if item.kind is not Kind.CLUSTER:
            found = states.in_cluster(self.aws, self.state, [item.kind])
            return next((one.state for one in found if one.name == item.name), "")
        request = Request(f"read the cluster {item.name}", "eks", "DescribeCluster", "", {"name": item.name})
        rows = states.described(self.aws, {"cluster": request})["cluster"]
        return str(rows[0]["cluster"]["status"]) if rows else ""

    def control_plane(self) -> None:
        """The cluster, with its addons and access entries."""
        for one in self.state.of(Kind.CLUSTER):
            self.begin(one, "DeleteCluster", {"name": one.name})

            def poll(one: Object = one) -> tuple[bool | None, str]:
                now = self.now(one)
                return (None, now) if now else (True, "")

            self.waiter.until(CLUSTER_DOWN, poll)
            self.waiter.progress(f"deleted {one}")

    def renewed(self, around: Belongings) -> Belongings:
        """Load balancers and security groups as AWS lists them now; the other objects as they were. A new one that
        may be of another cluster of this name is left out: nobody has confirmed that it goes."""
        now = self.look(self.aws, self.state, MADE_BY_CONTROLLERS)
        before = {(one.kind, one.name) for one in around.objects}
        made = []
        for one in (one for one in now.objects if one.kind in MADE_BY_CONTROLLERS):
            is_new = (one.kind, one.name) not in before and removal.belongs(one, self.state.cluster)
            if not is_new or removal.is_inside(one, self.state):
                made.append(one)
                if is_new:
                    self.waiter.progress(f"{one} was made meanwhile, and goes, too")
        others = [one for one in around.objects if one.kind not in MADE_BY_CONTROLLERS]
        return replace(around, objects=[*others, *made], named_by=now.named_by)

    def balancers(self, rows: Iterable[Row]) -> None:
        """Load balancers of Services and Ingresses: after the control plane, which would make them again."""
        names = []
        for row in rows:
            one = row.item
            arn = one.data.get("LoadBalancerArn")
            service, parameters = (
                ("elbv2", {"LoadBalancerArn": arn}) if arn else ("elb", {"LoadBalancerName": one.name})
            )
            try:
                self.act(f"delete the {one}", service, "DeleteLoadBalancer", parameters)
                names.append(one.name)
            except GpuctlError as error:
                if "OperationNotPermitted" not in code_of(error):
                    raise
                self.findings.append(removal.protected(one))
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

    def target_groups(self, rows: Iterable[Row]) -> None:
        """Target groups of Services and Ingresses, which are left if their controller did not remove them."""
        for row in rows:
            parameters = {"TargetGroupArn": str(row.item.data["TargetGroupArn"])}
            hint = "remove the listener that uses it, or have the deletion allowed"
            self.unless_refused(row.item, "elbv2", "DeleteTargetGroup", parameters, hint)

    def snapshots(self, rows: Iterable[Row]) -> None:
        """Snapshots, after all that costs by the hour: AWS Backup, an AMI or a lock may hold one for good."""
        for row in rows:
            parameters = {"SnapshotId": row.item.name}
            hint = "delete it where it is held: in AWS Backup, by its AMI or its lock; then run this again"
            self.unless_refused(row.item, "ec2", "DeleteSnapshot", parameters, hint)

    def unless_refused(
        self, item: Object, service: str, operation: str, parameters: Mapping[str, str], hint: str
    ) -> None:
        """Delete an object on which no other one depends. A refusal is a finding at once, and the rest goes on."""
        try:
            if self.act(f"delete the {item}", service, operation, parameters):
                self.waiter.progress(f"deleted {item}")
        except NoAnswer:
            raise
        except GpuctlError as error:
            check = "in-use" if _is_busy(error) else "remains"
            self.findings.append(fail(check, item.name, f"cannot delete {item}: {error.wrong}", hint))

    def nat(self, gateways: Sequence[Object]) -> None:
        """NAT gateways, until they have let go of their address."""
        for one in gateways:
            if one.state not in ("deleting", "failed"):  # AWS removes a failed one by itself
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
            left = [row for row in rows if row["State"] not in ("deleted", "failed")]
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
            attachments = (row.item.data.get("Attachments") or ()) if row.item.kind is Kind.GATEWAY else ()
            if all(self.detach(row.item, attached["VpcId"]) for attached in attachments):
                self.delete(row.item)

    def log_groups(self, rows: Iterable[Row]) -> None:
        """Log groups, after the control plane, which would make them again."""
        for row in rows:
            parameters = {"logGroupName": row.item.name}
            if self.act(f"delete the {row.item}", "logs", "DeleteLogGroup", parameters):
                self.waiter.progress(f"deleted {row.item}")

    def detach(self, gateway: Object, vpc: str) -> bool:
        """False, and a finding, if public addresses in the VPC still hold it."""
        parameters = {"InternetGatewayId": gateway.name, "VpcId": vpc}
        return self.when_free(gateway, "detach", "DetachInternetGateway", parameters)


def _is_busy(error: GpuctlError) -> bool:
    """True if AWS refuses a deletion as something holds the object."""
    code = code_of(error)
    return any(part in code for part in BUSY) or (code == "InvalidParameterValue" and "currently in use" in str(error))


def _is_balancers(owner: str, names: Iterable[str]) -> bool:
    return any(owner == f"load balancer {name}" for name in names)
