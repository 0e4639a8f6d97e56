"""Make a cluster step by step. Each step looks for its object first, so that a run goes on where another ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, ok, unknown, warn
from gpuctl.edges.aws import Aws, NoAnswer, Request, code_of
from gpuctl.eks import health, network, node_template
from gpuctl.eks import state as states
from gpuctl.eks.model import EksCluster, NodeGroup
from gpuctl.eks.network import Home, Place
from gpuctl.eks.node_template import NodeNetwork, Start
from gpuctl.eks.objects import (
    CONTENT,
    EFA_GROUP,
    EXPIRES,
    MEMBERS,
    ROLE_PATH,
    Kind,
    Object,
    State,
    digest,
    expiry,
    from_answer,
    object_name,
    role_name,
    tag_list,
    tags,
    token,
)
from gpuctl.eks.wait import ADDONS_UP, CLUSTER_UP, GROUPS_UP, NAT_UP, ROLE_KNOWN, TimeUp, Waiter

ATTEMPTS = 4  # of a change without an answer: the state is read before each
GROUP_FAILED = ("CREATE_FAILED", "DELETE_FAILED")
ANYWHERE = "0.0.0.0/0"
POLICIES = {
    "cluster": ("AmazonEKSClusterPolicy",),
    "node": ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy"),
}
SERVICES = {"cluster": "eks.amazonaws.com", "node": "ec2.amazonaws.com"}
ADMIN_POLICY = "arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


@dataclass(frozen=True)
class Design:
    """A cluster with what only AWS knows about its types. `needed_zones`: node group -> zones that it can use."""

    cluster: EksCluster
    networks: Mapping[str, NodeNetwork]  # by node group
    needed_zones: Mapping[str, frozenset[str]]
    has_gpus: bool


@dataclass
class Maker:
    """One run of making a cluster."""

    aws: Aws
    design: Design
    state: State
    waiter: Waiter

    @property
    def cluster(self) -> EksCluster:
        return self.design.cluster

    @property
    def partition(self) -> str:
        first = self.state.first_role
        return str(first.data["Arn"]).split(":")[1] if first else "aws"

    # ---- one object ----

    def tags(self, part: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Tags of an object; the end of the time to live is that of the first role."""
        plain = {**self.cluster.tags, **(more or {})}
        first = self.state.first_role
        if first is not None and first.tags.get(EXPIRES):
            plain[EXPIRES] = first.tags[EXPIRES]
        return tags(self.cluster.name, self.cluster.region, part, plain)

    def token(self, part: str, content: Any = "") -> str:
        first = self.state.first_role
        if first is None:
            raise GpuctlError(f"make {part}", "the first role is missing", "run the command again")
        return token(str(first.data["RoleId"]), part, content)

    def ensure(self, kind: Kind, part: str, request: Callable[[], Request], member: str) -> Object:
        """The object of a part, made if it does not exist. Without an answer the state is read before another attempt."""
        for attempt in range(1, ATTEMPTS + 1):
            found = self.state.get(kind, part)
            if found is not None:
                return self.checked(found)
            send = request()
            try:
                answer = self.aws.act(send)
            except NoAnswer:
                if attempt == ATTEMPTS:
                    raise
                self.waiter.progress(f"{send.doing}: no answer; looking whether it was done")
                self.waiter.sleep(self.waiter.every_s)
                self.state.objects = states.read(self.aws, self.cluster.name).objects
                continue
            data = answer.get(member, answer) if member else answer
            name = str(data.get(MEMBERS[kind][0]) or part)
            state = str(data.get(MEMBERS[kind][1] or "-") or "")
            made = Object(kind, name, part, state, ours=True, tags=self.tags(part), data=data)
            self.state.add(made)
            self.waiter.progress(f"made {made}")
            return made
        raise AssertionError("unreachable")

    def checked(self, found: Object) -> Object:
        if not found.ours:
            hint = "choose another name for the cluster, or remove it yourself"
            raise GpuctlError(f"make {found}", "it exists, and does not have gpuctl's tags of this cluster", hint)
        return found

    def act(self, doing: str, service: str, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Send a change that can be repeated."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.aws.act(Request(doing, service, operation, "", parameters))
            except NoAnswer:
                if attempt == ATTEMPTS:
                    raise
                self.waiter.sleep(self.waiter.every_s)
        raise AssertionError("unreachable")

    def ec2(self, kind: Kind, part: str, operation: str, member: str, type_: str, **parameters: Any) -> Object:
        """An object of EC2, with its tags from its first moment on."""
        more = parameters.pop("more", None)

        def request() -> Request:
            tagged = [{"ResourceType": type_, "Tags": tag_list(self.tags(part, more))}]
            return Request(f"make the {kind} {part}", "ec2", operation, "", {**parameters, "TagSpecifications": tagged})

        return self.ensure(kind, part, request, member)

    # ---- steps ----

    def roles(self) -> None:
        """The cluster's role is the first object of all: its id is in every token."""
        for part, service in SERVICES.items():
            trust = {
                "Version": "2012-10-17",
                "Statement": [
                    {"Effect": "Allow", "Principal": {"Service": service}, "Action": ["sts:AssumeRole"]},
                ],
            }
            ends = expiry(datetime.now(UTC), self.cluster.ttl_hours) if self.state.first_role is None else ""
            more = {EXPIRES: ends} if ends else {}

            def request(part: str = part, trust: Any = trust, more: Any = more) -> Request:
                parameters = {
                    "RoleName": role_name(self.cluster.name, self.cluster.region, part),
                    "Path": ROLE_PATH if part == "cluster" else "/",
                    "AssumeRolePolicyDocument": json.dumps(trust),
                    "Tags": tag_list(self.tags(part, more)),
                }
                return Request(f"make the {part} role", "iam", "CreateRole", "", parameters)

            role = self.ensure(Kind.ROLE, part, request, "Role")
            if more and not role.tags.get(EXPIRES):
                role = replace(role, tags={**role.tags, **more})
                self.state.add(role)
            attached = role.data.get("policies", ())
            for policy in POLICIES[part]:
                arn = f"arn:{self.partition}:iam::aws:policy/{policy}"
                if arn not in attached:
                    parameters = {"RoleName": role.name, "PolicyArn": arn}
                    self.act(f"attach {policy} to the {part} role", "iam", "AttachRolePolicy", parameters)

    def homes(self) -> tuple[list[str], list[Home]]:
        """Subnets of the control plane, and those for nodes."""
        if self.cluster.vpc is not None:
            self.own_network()
            chosen = [one.name for one in self.state.of(Kind.SUBNET) if one.part.startswith(network.PRIVATE)]
        else:
            chosen = list(self.cluster.subnets)
        request = Request("read the subnets", "ec2", "DescribeSubnets", "Subnets", {"SubnetIds": chosen})
        rows = self.aws.read(request, lambda answer: answer)
        free = [Home(one["SubnetId"], one["AvailabilityZoneId"], int(one["AvailableIpAddressCount"])) for one in rows]
        self.vpc = str(rows[0]["VpcId"])
        return chosen, free

    vpc = ""

    def own_network(self) -> None:
        """VPC, internet gateway, subnets, NAT gateway and routes; small requests that are repeated do no harm."""
        block = self.cluster.vpc
        vpc = self.ec2(Kind.VPC, "vpc", "CreateVpc", "Vpc", "vpc", CidrBlock=str(block)).name
        if not self.state.of(Kind.CLUSTER):
            for name in ("EnableDnsSupport", "EnableDnsHostnames"):
                self.act("set DNS of the VPC", "ec2", "ModifyVpcAttribute", {"VpcId": vpc, name: {"Value": True}})
        gateway = self.ec2(Kind.GATEWAY, "gateway", "CreateInternetGateway", "InternetGateway", "internet-gateway")
        if not any(one.get("VpcId") == vpc for one in gateway.data.get("Attachments") or ()):
            parameters = {"InternetGatewayId": gateway.name, "VpcId": vpc}
            self.act("attach the internet gateway", "ec2", "AttachInternetGateway", parameters)
        for place in self.places():
            self.ec2(
                *(Kind.SUBNET, place.part, "CreateSubnet", "Subnet", "subnet"),
                VpcId=vpc,
                CidrBlock=str(place.block),
                AvailabilityZoneId=place.zone_id,
                more=place.tags,
            )
        self.routes(network.PUBLIC, vpc, {"GatewayId": gateway.name})
        self.routes(network.PRIVATE, vpc, {"NatGatewayId": self.nat()})

    def places(self) -> list[Place]:
        """Subnets of the VPC; zones that an earlier run has chosen stay."""
        if self.cluster.vpc is None:
            return []
        kept = {
            int(one.part.rpartition("-")[2]): str(one.data["AvailabilityZoneId"]) for one in self.state.of(Kind.SUBNET)
        }
        filters = [{"Name": "zone-type", "Values": ["availability-zone"]}]
        request = Request(
            "list the zones", "ec2", "DescribeAvailabilityZones", "AvailabilityZones", {"Filters": filters}
        )
        rows = self.aws.read(request, lambda answer: answer)
        available = [str(one["ZoneId"]) for one in rows if one.get("State") == "available"]
        zones = network.choose_zones(available, self.design.needed_zones, kept)
        return network.places(self.cluster.vpc, zones)

    def nat(self) -> str:
        """Id of the NAT gateway, once it is available."""
        address = self.ec2(Kind.ADDRESS, "nat", "AllocateAddress", "", "elastic-ip", Domain="vpc")
        subnet = self.state.get(Kind.SUBNET, f"{network.PUBLIC}-0")
        content: dict[str, Any] = {"SubnetId": subnet.name if subnet else "", "AllocationId": address.name}
        made = self.ec2(
            *(Kind.NAT, "nat", "CreateNatGateway", "NatGateway", "natgateway"),
            **content,
            ClientToken=self.token("nat", content),
        )

        def poll() -> tuple[str | None, str]:
            parameters = {"NatGatewayIds": [made.name]}
            request = Request("read the NAT gateway", "ec2", "DescribeNatGateways", "NatGateways", parameters)
            row = self.aws.read(request, lambda answer: answer)[0]
            if row["State"] == "failed":
                wrong = f"{row.get('FailureMessage') or 'AWS names no reason'} ({row.get('FailureCode') or 'no code'})"
                hint = "remove the cause, run `gpuctl eks destroy`, and make it again"
                raise GpuctlError("make the NAT gateway", wrong, hint)
            return (made.name if row["State"] == "available" else None), str(row["State"])

        return self.waiter.until(NAT_UP, poll) if made.state != "available" else made.name

    def routes(self, part: str, vpc: str, target: Mapping[str, str]) -> None:
        """A route table with a default route, and the subnets that use it."""
        content: dict[str, Any] = {"VpcId": vpc}
        table = self.ec2(
            *(Kind.ROUTES, part, "CreateRouteTable", "RouteTable", "route-table"),
            **content,
            ClientToken=self.token(f"routes {part}", content),
        )
        if not any(one.get("DestinationCidrBlock") == ANYWHERE for one in table.data.get("Routes") or ()):
            parameters = {"RouteTableId": table.name, "DestinationCidrBlock": ANYWHERE, **target}
            self.act(f"add the default route of the {part} subnets", "ec2", "CreateRoute", parameters)
        used = {one.get("SubnetId") for one in table.data.get("Associations") or ()}
        for subnet in self.state.of(Kind.SUBNET):
            if subnet.part.startswith(f"{part}-") and subnet.name not in used:
                parameters = {"RouteTableId": table.name, "SubnetId": subnet.name}
                self.act(f"use the route table in {subnet.part}", "ec2", "AssociateRouteTable", parameters)

    def efa_group(self) -> str:
        """Id of the security group with EFA's rules, all traffic from and to itself; "" if no group has EFA."""
        if not any(one.has_efa for one in self.design.networks.values()):
            return ""
        made = self.ec2(
            *(Kind.SECURITY_GROUP, EFA_GROUP, "CreateSecurityGroup", "", "security-group"),
            GroupName=object_name(self.cluster.name, EFA_GROUP),
            Description=f"EFA between the nodes of {self.cluster.name}",
            VpcId=self.vpc,
        )
        rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": made.name}]}]
        for direction, member in (("Ingress", "IpPermissions"), ("Egress", "IpPermissionsEgress")):
            pairs = [pair for one in made.data.get(member) or () for pair in one.get("UserIdGroupPairs") or ()]
            if not any(pair.get("GroupId") == made.name for pair in pairs):
                parameters = {"GroupId": made.name, "IpPermissions": rule}
                self._allow(direction, parameters)
        return made.name

    def _allow(self, direction: str, parameters: Mapping[str, Any]) -> None:
        try:
            self.act("add EFA's rule", "ec2", f"AuthorizeSecurityGroup{direction}", parameters)
        except GpuctlError as error:
            if code_of(error) != "InvalidPermission.Duplicate":
                raise

    def control_plane(self, subnets: Sequence[str]) -> str:
        """Make the cluster and wait for it; returns the id of its security group."""
        cluster, role = self.cluster, self.state.first_role
        access = {"endpointPublicAccess": cluster.public_endpoint, "endpointPrivateAccess": cluster.private_endpoint}
        if cluster.public_endpoint and cluster.allowed:
            access["publicAccessCidrs"] = [str(block) for block in cluster.allowed]  # type: ignore[assignment]
        content: dict[str, Any] = {
            "name": cluster.name,
            "version": cluster.version,
            "roleArn": role.data["Arn"] if role else "",
            "resourcesVpcConfig": {"subnetIds": list(subnets), **access},
            "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
            "bootstrapSelfManagedAddons": False,
        }

        def request() -> Request:
            plain = {**content, "tags": self.tags("control-plane")}
            plain["clientRequestToken"] = self.token("cluster", content)
            return Request(f"make the cluster {cluster.name}", "eks", "CreateCluster", "", plain)

        self.once_role_is_known(lambda: self.ensure(Kind.CLUSTER, "control-plane", request, "cluster"))

        def poll() -> tuple[Mapping[str, Any] | None, str]:
            parameters = {"name": cluster.name}
            reading = Request(f"read the cluster {cluster.name}", "eks", "DescribeCluster", "", parameters)
            row = self.aws.read(reading, lambda answer: answer["cluster"])[0]
            if row["status"] == "FAILED":
                wrong = "; ".join(map(str, health.issues(row))) or "AWS names no reason"
                raise GpuctlError(f"make the cluster {cluster.name}", wrong, "destroy it, and make it again")
            is_up = row["status"] in ("ACTIVE", "UPDATING")
            return (row if is_up else None), str(row["status"])

        row = self.waiter.until(CLUSTER_UP, poll)
        self.state.add(from_answer(Kind.CLUSTER, row, cluster.name, cluster.region))
        return str((row.get("resourcesVpcConfig") or {}).get("clusterSecurityGroupId") or "")

    def once_role_is_known(self, make: Callable[[], Object]) -> Object:
        """Repeat a request that AWS refuses as it does not know the new role yet."""

        def poll() -> tuple[Object | None, str]:
            try:
                return make(), ""
            except GpuctlError as error:
                is_role = "role" in error.wrong.lower() and code_of(error) in (
                    *("InvalidParameterException", "InvalidRequestException", "AccessDeniedException"),
                )
                if not is_role:
                    raise
                last.append(error)
                return None, "not known"

        last: list[GpuctlError] = []
        try:
            return self.waiter.until(ROLE_KNOWN, poll)
        except TimeUp:
            raise last[-1] from last[-1].__cause__

    def access(self) -> None:
        """Access entries of administrators."""
        policy = ADMIN_POLICY.format(partition=self.partition)
        for arn in self.cluster.admins:
            of_cluster = {"clusterName": self.cluster.name, "principalArn": arn}

            def request(arn: str = arn, of_cluster: Mapping[str, str] = of_cluster) -> Request:
                plain = {**of_cluster, "tags": self.tags(digest(arn)), "clientRequestToken": self.token("entry", arn)}
                return Request(f"let {arn} administer the cluster", "eks", "CreateAccessEntry", "", plain)

            found = next((one for one in self.state.of(Kind.ENTRY) if one.name == arn), None)  # its own login has one
            entry = found or self.ensure(Kind.ENTRY, digest(arn), request, "accessEntry")
            if policy not in entry.data.get("policies", ()):
                parameters = {**of_cluster, "policyArn": policy, "accessScope": {"type": "cluster"}}
                self.act(f"let {arn} administer the cluster", "eks", "AssociateAccessPolicy", parameters)

    def addons(self, names: Sequence[str]) -> list[Finding]:
        """Make addons and wait for them; a degraded one is a warning, as nodes may come later."""
        for name in names:
            content = {"clusterName": self.cluster.name, "addonName": name}
            values = node_template.addon_values(self.cluster, name)
            content |= {"configurationValues": values} if values else {}

            def request(name: str = name, content: Mapping[str, str] = content) -> Request:
                plain = {**content, "resolveConflicts": "OVERWRITE", "tags": self.tags(name)}
                plain["clientRequestToken"] = self.token(f"addon {name}", content)
                return Request(f"make the addon {name}", "eks", "CreateAddon", "", plain)

            found = next((one for one in self.state.of(Kind.ADDON) if one.name == name), None)
            if found is None:
                self.ensure(Kind.ADDON, name, request, "addon")
        waiting = set(names)

        def poll() -> tuple[list[Object] | None, str]:
            rows = states.in_cluster(self.aws, self.state, [Kind.ADDON])
            for one in rows:
                self.state.add(one)
            due = [one for one in rows if one.name in waiting]
            busy = [f"{one.name} {one.state}" for one in due if one.state in ("CREATING", "UPDATING")]
            return (due if not busy else None), ", ".join(busy)

        return [self.judged_addon(one) for one in self.waiter.until(ADDONS_UP, poll)]

    def judged_addon(self, addon: Object) -> Finding:
        subject = f"addon {addon.name}"
        if addon.state == "ACTIVE":
            return ok("addon", subject, "ACTIVE")
        found = health.issues(addon.data)
        message = f"{addon.state}: {'; '.join(map(str, found)) or 'AWS names no reason'}"
        hint = next((text for text in map(health.hint, found) if text), "look at it in the EKS console")
        return (
            warn("addon", subject, message, hint)
            if addon.state == "DEGRADED"
            else fail("addon", subject, message, hint)
        )

    # ---- node groups ----

    def node_groups(self, subnets: Sequence[Home], security_groups: Sequence[str]) -> list[Finding]:
        """Make launch templates and node groups, then wait for all groups together."""
        findings = []
        for group in self.cluster.node_groups:
            self.remove_failed(group)
            placement = self.placement(group)
            findings += self.node_group(group, subnets, security_groups, placement)
        names = {group.name for group in self.cluster.node_groups}

        def poll() -> tuple[list[Object] | None, str]:
            rows = [one for one in states.in_cluster(self.aws, self.state, [Kind.GROUP]) if one.name in names]
            for one in rows:
                self.state.add(one)
                for issue in health.issues(one.data):
                    action = health.hint(issue)
                    self.waiter.once(f"node group {one.name}: {issue}" + (f"; {action}" if action else ""))
            busy = [f"{one.name} {one.state}" for one in rows if one.state in ("CREATING", "UPDATING", "DELETING")]
            return (rows if not busy else None), ", ".join(busy)

        return [*findings, *(self.judged_group(one) for one in self.waiter.until(GROUPS_UP, poll))]

    def placement(self, group: NodeGroup) -> str:
        name = node_template.placement_group(group, object_name(self.cluster.name, group.name))
        if group.placement == "cluster":
            parameters: dict[str, Any] = {"GroupName": name, "Strategy": "cluster"}
            self.ec2(
                *(Kind.PLACEMENT, group.name, "CreatePlacementGroup", "PlacementGroup", "placement-group"),
                **parameters,
            )
        return name

    def node_group(
        self, group: NodeGroup, subnets: Sequence[Home], security_groups: Sequence[str], placement: str
    ) -> list[Finding]:
        """Launch template and node group of one group. A group that exists is compared, and not changed."""
        made_from = self.design.networks[group.name]
        prefixes = "ENABLE_PREFIX_DELEGATION=true" in self.cluster.cni
        data = node_template.launch_template(
            group,
            made_from,
            Start(security_groups, placement, node_template.max_pods(group, made_from, prefixes)),
            self.tags(group.name),
        )
        existing = self.state.get(Kind.GROUP, group.name)
        content = digest(data)
        if existing is not None:
            self.checked(existing)
            template = self.state.get(Kind.TEMPLATE, group.name)
            if template is not None and template.tags.get(CONTENT) != content:
                message = "it was made from other values than the file has now; it stays as it is"
                hint = "make a group of another name, or destroy the cluster and make it again"
                return [warn("node-group", group.name, message, hint)]
            return []
        template = self.template(group, data, content)
        usable = network.homes(group, made_from.has_efa, self.design.needed_zones[group.name], subnets)
        if not usable:
            where = ", ".join(sorted(self.design.needed_zones[group.name])) or "no zone"
            wrong = f"its instances are in {where}, and no subnet lies there"
            raise GpuctlError(f"make the node group {group.name}", wrong, "add a subnet: `gpuctl subnets add`")
        role = self.state.get(Kind.ROLE, "node")
        version = {"id": template.name, "version": str(template.data.get("DefaultVersionNumber") or 1)}
        arn = str(role.data["Arn"]) if role else ""
        parameters = node_template.node_group(self.cluster, group, arn, [one.name for one in usable], version)

        def request() -> Request:
            plain = {**parameters, "tags": self.tags(group.name)}
            plain["clientRequestToken"] = self.token(f"group {group.name}", [parameters, content, self.removed])
            return Request(f"make the node group {group.name}", "eks", "CreateNodegroup", "", plain)

        self.once_role_is_known(lambda: self.ensure(Kind.GROUP, group.name, request, "nodegroup"))
        return []

    removed = ""  # a failed group that this run removed has used its token

    def remove_failed(self, group: NodeGroup) -> None:
        """Remove a group that AWS could not make: EKS cannot repair one, and it is made again."""
        found = self.state.get(Kind.GROUP, group.name)
        if found is None or found.state not in (*GROUP_FAILED, "DELETING") or not found.ours:
            return
        why = "; ".join(map(str, health.issues(found.data))) or "AWS names no reason"
        self.waiter.progress(f"node group {group.name} is {found.state} ({why}): removing it, to make it again")
        parameters = {"clusterName": self.cluster.name, "nodegroupName": group.name}
        if found.state != "DELETING":
            self.act(f"remove the failed node group {group.name}", "eks", "DeleteNodegroup", parameters)
        self.removed = str(time.time_ns())

        def poll() -> tuple[bool | None, str]:
            rows = states.in_cluster(self.aws, self.state, [Kind.GROUP])
            left = next((one for one in rows if one.name == group.name), None)
            if left is not None and left.state == "DELETE_FAILED":
                wrong = "; ".join(map(str, health.issues(left.data))) or "AWS names no reason"
                raise GpuctlError(f"remove the failed node group {group.name}", wrong, "remove the cause, and resume")
            return (True if left is None else None), left.state if left else ""

        self.waiter.until(GROUPS_UP, poll)
        self.state.objects = [one for one in self.state.objects if (one.kind, one.part) != (Kind.GROUP, group.name)]

    def template(self, group: NodeGroup, data: Mapping[str, Any], content: str) -> Object:
        """The launch template with this content; another version of one that has other content."""

        def request() -> Request:
            tagged = [{"ResourceType": "launch-template", "Tags": tag_list(self.tags(group.name, {CONTENT: content}))}]
            parameters = {
                "LaunchTemplateName": object_name(self.cluster.name, group.name),
                "LaunchTemplateData": data,
                "TagSpecifications": tagged,
                "ClientToken": self.token(f"template {group.name}", content),
            }
            return Request(f"make the launch template of {group.name}", "ec2", "CreateLaunchTemplate", "", parameters)

        known = self.state.get(Kind.TEMPLATE, group.name) is not None
        found = self.ensure(Kind.TEMPLATE, group.name, request, "LaunchTemplate")
        if not known or found.tags.get(CONTENT) == content:
            return found
        doing = f"change the launch template of {group.name}"
        named_ = {"LaunchTemplateId": found.name}
        version = self.act(
            *(doing, "ec2", "CreateLaunchTemplateVersion"),
            {**named_, "LaunchTemplateData": data, "ClientToken": self.token(f"version {group.name}", content)},
        )["LaunchTemplateVersion"]["VersionNumber"]
        self.act(doing, "ec2", "ModifyLaunchTemplate", {**named_, "DefaultVersion": str(version)})
        tagging = {"Resources": [found.name], "Tags": [{"Key": CONTENT, "Value": content}]}
        self.act(doing, "ec2", "CreateTags", tagging)
        changed = replace(
            found,
            tags={**found.tags, CONTENT: content},
            data={**found.data, "DefaultVersionNumber": version},
        )
        self.state.add(changed)
        return changed

    def judged_group(self, group: Object) -> Finding:
        found = health.issues(group.data)
        text = "; ".join(map(str, found))
        hint = next((action for action in map(health.hint, found) if action), "")
        if group.state == "ACTIVE" and not found:
            size = group.data.get("scalingConfig", {}).get("desiredSize")
            return ok("node-group", group.name, f"ACTIVE, {size} nodes desired")
        if group.state == "ACTIVE":
            return warn("node-group", group.name, f"ACTIVE, with issues: {text}", hint)
        again = hint or "remove the cause, then run `gpuctl eks resume`, which makes it again"
        return fail("node-group", group.name, f"{group.state}: {text or 'AWS names no reason'}", again)


def create(aws: Aws, design: Design, waiter: Waiter) -> list[Finding]:
    """Make what is missing of a cluster, and judge what was made. Raises at the first step that AWS refuses."""
    state = states.read(aws, design.cluster.name)
    if extra := state.duplicates():
        wrong = f"AWS has more than one of a part: {named(map(str, extra))}"
        raise GpuctlError(f"make {design.cluster.name}", wrong, "two runs may have met: destroy it, and make it again")
    maker = Maker(aws, design, state, waiter)
    before, after = node_template.addons(design.cluster)
    maker.roles()
    subnets, homes = maker.homes()
    efa = maker.efa_group()
    own = maker.control_plane(subnets)
    maker.access()
    findings = maker.addons(before)
    findings += maker.node_groups(homes, [one for one in (own, efa) if one])
    findings += maker.addons(after)
    return [*findings, *unchecked(design)]


def unchecked(design: Design) -> list[Finding]:
    """Resources of Kubernetes that gpuctl has not looked at."""
    if not design.has_gpus:
        return []
    with_efa = any(one.has_efa for one in design.networks.values())
    plugins = "NVIDIA's device plugin" + (" and AWS's EFA plugin" if with_efa else "")
    message = f"nothing inside Kubernetes was checked: whether the nodes offer their GPUs{' and EFA' * with_efa}"
    return [unknown("gpu-resources", design.cluster.name, message, f"install {plugins}; then `kubectl describe nodes`")]
