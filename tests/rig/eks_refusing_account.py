"""An AWS account that refuses what AWS refuses and moto does not: quotas, permissions, capacity, subnets, names, nodes.

Beside what eks_endpoint.py adds, the account has quotas, reservations, placement groups, versions, addons and denied
actions. What it lists and what it refuses come out of the same state, and its rules know nothing of gpuctl. Codes and
words are AWS's (documentation, or errors in public issue threads); words marked with (*) are not verified, only what
makes AWS refuse.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape, unescape

from tests.rig.aws_endpoint import ERROR, Answer, client
from tests.rig.eks_endpoint import ACCOUNT, REGION, XML, Additions, Forward, Received, backend
from tests.rig.iam_statements import EVERYTHING, names_action, simulated

ON_DEMAND = {
    "g": "Running On-Demand G and VT instances",
    "p": "Running On-Demand P instances",
    "c": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
}
SPOT = {
    "g": "All G and VT Spot Instance Requests",
    "p4": "All P4, P3 and P2 Spot Instance Requests",
    "p5": "All P5 Spot Instance Requests",
}
CHANGES = re.compile(r":(Create|Run|Pass|Attach|Associate)")
PRIVATE_SERVICES = {"ec2", "ecr.api", "ecr.dkr", "s3", "sts"}
ITSELF = "account"  # its login, of which no permission is asked
SERVICES = {"ec2", "vpc", "eks"}
NO_CLUSTER = ("use1-az3", "usw1-az2", "cac1-az3")
MAIN_ADDONS = {"vpc-cni", "kube-proxy", "coredns", "aws-ebs-csi-driver", "eks-pod-identity-agent"}
NS = "http://ec2.amazonaws.com/doc/2016-11-15/"
NO_ROOM = "The requested reservation does not have sufficient compatible and available capacity for this request."
LAUNCH = "Could not launch {} Instances. {} - {} Launching EC2 instance failed."
JOIN = {"code": "NodeCreationFailure", "message": "Instances failed to join the kubernetes cluster"}


def quotas() -> dict[str, dict[str, float]]:
    """Quotas that suffice for each good plan."""
    ec2 = dict.fromkeys([*ON_DEMAND.values(), *SPOT.values()], 4000.0) | {"EC2-VPC Elastic IPs": 20.0}
    eks = {"Clusters": 100.0, "Managed node groups per cluster": 30.0, "Nodes per managed node group": 450.0}
    return {
        "ec2": ec2,
        "vpc": {"VPCs per Region": 30.0, "Internet gateways per Region": 30.0},
        "eks": eks | {"Public endpoint access CIDR ranges per cluster": 40.0},
    }


class Refused(Exception):
    """Stand-in of AWS's refusal."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass
class RefusingAccount(Additions):
    """State of the account. `groups`: placement groups of others, name -> strategy and state. `running`: nodes by
    instance type and market. `taken`: addresses of nodes by subnet. `allow`: statements of the login's policy."""

    url: str = ""
    quota: dict[str, dict[str, float]] = field(default_factory=quotas)
    allow: list[dict[str, Any]] = field(default_factory=lambda: [EVERYTHING])
    denied: set[str] = field(default_factory=set)
    refusals: list[str] = field(default_factory=list)  # answers that are errors or name health issues
    reservations: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, tuple[str, str]] = field(default_factory=dict)
    most_groups: int = 500
    most_roles: int = 1000
    ends: dict[str, datetime] = field(default_factory=dict)  # version -> end of its extended support
    addon_names: set[str] = field(default_factory=lambda: set(MAIN_ADDONS))
    running: Counter[tuple[str, str]] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)  # addresses that the VPC CNI holds for pods, by subnet
    broken: dict[str, dict[str, Any]] = field(default_factory=dict)  # cluster -> health issue with which it fails

    def respond(self, request: Received, forward: Forward) -> Answer:
        status, text = self._answer(request, forward)
        if status >= 400 or '"issues"' in text:
            self.refusals.append(unescape(text))
        return status, text

    def _answer(self, request: Received, forward: Forward) -> Answer:
        try:
            self._permissions(request)
            listed = self._listed(request)
            if listed is not None:
                return listed
            self._judge(request)
        except Refused as error:
            if request.path.startswith("/clusters"):
                return 400, json.dumps({"__type": error.code, "message": error.message})
            return 400, ERROR.format(code=error.code, message=escape(error.message))
        status, text = super().respond(request, forward)
        group = re.fullmatch(r"/clusters/([^/]+)/node-groups", request.path)
        if group and request.method == "POST" and status == 200:
            self._start(group[1], json.loads(request.body))
        return status, text

    # ---- lists ----

    def _listed(self, request: Received) -> Answer | None:
        query = {key: values[0] for key, values in parse_qs(request.body.decode(errors="replace")).items()}
        if request.operation == "ListServiceQuotas":
            listed = self.quota[json.loads(request.body)["ServiceCode"]]
            return 200, json.dumps({"Quotas": [{"QuotaName": key, "Value": one} for key, one in listed.items()]})
        if request.operation == "DescribeCapacityReservations":
            items = "".join(f"<item>{_members(one)}</item>" for one in self.reservations)
            return 200, XML.format(request.operation, f"<capacityReservationSet>{items}</capacityReservationSet>")
        if request.operation == "SimulatePrincipalPolicy":
            return 200, self._simulated(query)
        if request.operation == "DescribePlacementGroups" and "Filter.1.Name" not in query:
            return 200, self._groups_listed(request)
        if request.operation == "GetAccountSummary":
            return 200, self._summary(request)
        return self._of_eks(request)

    def _of_eks(self, request: Received) -> Answer | None:
        if request.path == "/cluster-versions":
            return 200, json.dumps({"clusterVersions": self._versions()})
        if request.path == "/addons/supported-versions":
            asked = parse_qs(request.query).get("addonName", [""])[0]
            known = [asked] if asked in self.addon_names else []
            versions = [{"addonName": name, "addonVersions": [{"addonVersion": "v1"}]} for name in known]
            return 200, json.dumps({"addons": versions})
        return None

    def _groups_listed(self, request: Received) -> str:
        own = dict.fromkeys(self.placement, ("cluster", "available"))
        items = "".join(
            f"<item><groupName>{name}</groupName><strategy>{strategy}</strategy><state>{state}</state></item>"
            for name, (strategy, state) in {**self.groups, **own}.items()
        )
        return XML.format(request.operation, f"<placementGroupSet>{items}</placementGroupSet>")

    def _summary(self, request: Received) -> str:
        pairs = {"Roles": len(backend("iam").roles), "RolesQuota": self.most_roles}
        items = "".join(f"<entry><key>{key}</key><value>{one}</value></entry>" for key, one in pairs.items())
        inner = f"<GetAccountSummaryResult><SummaryMap>{items}</SummaryMap></GetAccountSummaryResult>"
        return XML.format(request.operation, inner)

    def _simulated(self, query: Mapping[str, str]) -> str:
        rows = "".join(
            f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>{resource}</EvalResourceName>"
            f"<EvalDecision>{decision}</EvalDecision></member>"
            for action, resource, decision in simulated(self.allow, self.denied, query)
        )
        inner = f"<EvaluationResults>{rows}</EvaluationResults><IsTruncated>false</IsTruncated>"
        result = f"<SimulatePrincipalPolicyResult>{inner}</SimulatePrincipalPolicyResult>"
        return f"<SimulatePrincipalPolicyResponse>{result}</SimulatePrincipalPolicyResponse>"

    def _versions(self) -> list[dict[str, Any]]:
        later = datetime.now(UTC) + timedelta(days=500)
        rows = [("1.36", later, later + timedelta(days=365)), ("1.35", later, later + timedelta(days=365))]
        rows += [(name, end - timedelta(days=365), end) for name, end in self.ends.items()]
        return [
            {
                "clusterVersion": name,
                "endOfStandardSupportDate": standard.timestamp(),
                "endOfExtendedSupportDate": extended.timestamp(),
            }
            for name, standard, extended in rows
        ]

    # ---- refusals ----

    def _judge(self, request: Received) -> None:
        if request.method == "POST" and request.path == "/clusters":
            self._cluster(json.loads(request.body))
        if request.method != "POST":
            return
        cluster = re.fullmatch(r"/clusters/([^/]+)/(node-groups|addons|access-entries)", request.path)
        if cluster:
            body = json.loads(request.body)
            rules = {"node-groups": self._group, "addons": self._addon, "access-entries": self._entry}
            rules[cluster[2]](cluster[1], body)
        if request.operation == "CreateLoadBalancer":
            self._load_balancer(parse_qs(request.body.decode()))
        self._limits(request.operation)

    def _load_balancer(self, query: Mapping[str, list[str]]) -> None:
        """A load balancer needs eight free addresses beside what nodes and the VPC CNI hold."""
        names = [values[0] for key, values in query.items() if key.startswith("Subnets.member.")]
        for row in self.subnets(names):
            if not self.has_balancer_room(row):
                message = (
                    f"Not enough IP space available in {row['SubnetId']}. ELB requires at least 8 free IP addresses"
                )
                raise Refused("InvalidSubnet", f"{message} in each subnet.")

    def has_balancer_room(self, row: Mapping[str, Any]) -> bool:
        return self._free(row) - self.held[row["SubnetId"]] >= 8

    def _permissions(self, request: Received) -> None:
        for action in actions_of(request):
            if action in self.denied:
                user = f"arn:aws:iam::{ACCOUNT}:user/alice"
                why = f"User: {user} is not authorized to perform: {action} with an explicit deny in a policy"
                ec2 = action.startswith("ec2:") and not request.path.startswith("/clusters")
                raise Refused("UnauthorizedOperation" if ec2 else "AccessDeniedException", why)
            if CHANGES.search(action) and not names_action(self.allow, action):
                why = f"User: x is not authorized to perform: {action} because no identity-based policy allows it"
                raise Refused("AccessDeniedException", why)

    def _limits(self, operation: str) -> None:
        ec2 = backend("ec2")
        vpc = self.quota["vpc"]
        most = {
            "CreateVpc": ("VpcLimitExceeded", "VPCs", len(ec2.vpcs), vpc["VPCs per Region"]),
            "AllocateAddress": (
                *("AddressLimitExceeded", "addresses"),
                *(len(ec2.addresses), self.quota["ec2"]["EC2-VPC Elastic IPs"]),
            ),
            "CreateInternetGateway": (
                *("InternetGatewayLimitExceeded", "internet gateways"),
                *(len(ec2.internet_gateways), vpc["Internet gateways per Region"]),
            ),
            "CreatePlacementGroup": (
                *("PlacementGroupLimitExceeded", "placement groups"),
                *(len(self.groups) + len(self.placement), self.most_groups),
            ),
        }
        if operation in most:
            code, what, used, limit = most[operation]
            if used >= limit:
                raise Refused(code, f"The maximum number of {what} has been reached.")
        if operation == "CreateRole" and len(backend("iam").roles) >= self.most_roles:
            raise Refused("LimitExceeded", f"Cannot exceed quota for RolesPerAccount: {self.most_roles}")

    def _cluster(self, body: Mapping[str, Any]) -> None:
        wrong, version = "InvalidParameterException", body["version"]
        offered = {"1.36", "1.35", *(name for name, end in self.ends.items() if end > datetime.now(UTC))}
        if version not in offered:
            raise Refused(wrong, f"unsupported Kubernetes version: {version}")  # (*)
        if len(backend("eks").clusters) >= self.quota["eks"]["Clusters"]:
            raise Refused("ResourceLimitExceededException", "Cluster limit exceeded for account.")  # (*)
        _trust(body["roleArn"], "eks.amazonaws.com")
        config = body["resourcesVpcConfig"]
        self._cluster_subnets(config["subnetIds"], body["name"])
        allowed = [IPv4Network(one) for one in config.get("publicAccessCidrs", ())]
        if any(one.subnet_of(IPv4Network(block)) for one in allowed for block in ("10.0.0.0/8", "192.168.0.0/16")):
            raise Refused(wrong, "The following CIDRs are invalid in publicAccessCidrs: reserved addresses")  # (*)
        if len(allowed) > self.quota["eks"]["Public endpoint access CIDR ranges per cluster"]:
            raise Refused(wrong, "The limit of publicAccessCidrs is reached")  # (*)

    def _cluster_subnets(self, names: Sequence[str], cluster: str) -> None:
        rows = self.subnets(names)
        if len({one["VpcId"] for one in rows}) > 1:
            raise Refused("InvalidParameterException", "Subnets specified must belong to the same VPC")  # (*)
        refused = [one["AvailabilityZone"] for one in rows if one["AvailabilityZoneId"] in NO_CLUSTER]
        if refused:
            message = (
                f"Cannot create cluster '{cluster}' because {refused[0]}, the targeted availability zone, does not"
            )
            raise Refused("UnsupportedAvailabilityZoneException", f"{message} currently have sufficient capacity")
        if len({one["AvailabilityZoneId"] for one in rows}) < 2:
            message = "Subnets specified must be in at least two different AZs"
            raise Refused("InvalidParameterException", message)
        short = [one["SubnetId"] for one in rows if self._free(one) < 6]
        if short:
            message = "not enough free addresses in the subnets of the cluster"  # (*)
            self.broken[cluster] = {"code": "InsufficientFreeAddresses", "message": message, "resourceIds": short}

    def subnets(self, names: Sequence[str]) -> list[dict[str, Any]]:
        rows = self._ec2("describe_subnets", Filters=[{"Name": "subnet-id", "Values": list(names)}])["Subnets"]
        missing = set(names) - {one["SubnetId"] for one in rows}
        if missing:
            message = f"The subnet ID '{min(missing)}' does not exist"
            raise Refused("InvalidParameterException", f"{message} (InvalidSubnetID.NotFound)")
        return list(rows)

    def _addon(self, cluster: str, body: Mapping[str, Any]) -> None:
        if body["addonName"] not in self.addon_names:
            version = backend("eks").clusters[cluster].version
            message = f"Addon {body['addonName']} specified is not supported in {version} kubernetes version"
            raise Refused("InvalidParameterException", message)

    def _entry(self, _: str, body: Mapping[str, Any]) -> None:
        kind, name = body["principalArn"].split(":")[5].rpartition("/")[0], body["principalArn"].rpartition("/")[2]
        iam = backend("iam")
        known = [one.name for one in iam.roles.values()] if kind.startswith("role") else list(iam.users)
        if name not in known:
            raise Refused("InvalidParameterException", "The specified principalArn is invalid: invalid principal.")

    def _group(self, cluster: str, body: Mapping[str, Any]) -> None:
        eks, wrong = self.quota["eks"], "InvalidParameterException"
        _trust(body["nodeRole"], "ec2.amazonaws.com")
        if len(backend("eks").clusters[cluster].nodegroups) >= eks["Managed node groups per cluster"]:
            raise Refused("ResourceLimitExceededException", "The limit of nodegroups is reached")  # (*)
        if body["scalingConfig"]["maxSize"] > eks["Nodes per managed node group"]:
            raise Refused(wrong, "maxSize is above the limit of nodes of a nodegroup")  # (*)
        data = _template(body["launchTemplate"])
        kind = type_of(data["InstanceType"])
        is_arm = "arm64" in kind["ProcessorInfo"]["SupportedArchitectures"]
        if is_arm != ("ARM" in body["amiType"]):
            text = f"[{data['InstanceType']}] is not a valid instance type for requested amiType {body['amiType']}"
            raise Refused(wrong, text)
        reserved = self._reservation(data)
        is_block = reserved is not None and reserved["reservationType"] == "capacity-block"
        if reserved is not None and is_block != (body["capacityType"] == "CAPACITY_BLOCK"):
            raise Refused(wrong, f"capacityType {body['capacityType']} does not fit the capacity reservation")  # (*)

    # ---- nodes ----

    def _start(self, cluster: str, body: Mapping[str, Any]) -> None:
        """Start the desired nodes of a group; what keeps them from starting or joining is its health issue."""
        data = _template(body["launchTemplate"])
        rows = self.subnets(body["subnets"])
        count = body["scalingConfig"]["desiredSize"]
        market = {"SPOT": "Spot", "CAPACITY_BLOCK": "Capacity Block"}.get(body["capacityType"], "On-Demand")
        issue = None
        for reason in self._launch(data, rows, count, market) if count else ():
            code, message = reason
            if code == "InsufficientFreeAddresses":
                issue = {"code": code, "message": message}
            else:
                issue = {"code": "AsgInstanceLaunchFailures", "message": LAUNCH.format(market, code, message)}
            break
        if issue is None and count:
            issue = dict(JOIN) if any(self._unreachable(one, data) for one in rows) else None
        if issue is not None:
            self.failing[body["nodegroupName"]] = {**issue, "resourceIds": ["asg-1"]}
            return
        self.running[data["InstanceType"], market] += count
        for number in range(count):
            subnet = rows[number % len(rows)]["SubnetId"]
            self.taken[subnet] += _addresses(data)
            # By its default the CNI holds all addresses of the first interface, and of one more in reserve.
            each = type_of(data["InstanceType"])["NetworkInfo"]["Ipv4AddressesPerInterface"]
            self.held[subnet] += 2 * each - 1
        if market == "Capacity Block":
            tags = {"eks:cluster-name": cluster, "eks:nodegroup-name": body["nodegroupName"]}
            tagged = [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": one} for key, one in tags.items()]}]
            wanted = {"ImageId": "ami-12c6146b", "MinCount": count, "MaxCount": count, "InstanceType": "c5.large"}
            self._ec2("run_instances", **wanted, SubnetId=rows[0]["SubnetId"], TagSpecifications=tagged)

    def _launch(
        self, data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], count: int, market: str
    ) -> Iterator[tuple[str, str]]:
        """Codes and messages with which EC2 refuses to start instances."""
        name = data["InstanceType"]
        kind = type_of(name)
        usage = {"Spot": "spot", "Capacity Block": "capacity-block", "On-Demand": "on-demand"}[market]
        if usage not in kind["SupportedUsageClasses"]:
            message = "The requested configuration is currently not supported."
            yield "Unsupported", f"{message} Please check the documentation for supported configurations."
        if not {one["AvailabilityZoneId"] for one in rows} & self._offers(name):
            zone = rows[0]["AvailabilityZone"]
            yield "Unsupported", f"Your requested instance type ({name}) is not supported in {zone}."
        yield from self._placed(data, kind, rows, count)
        reserved = self._reservation(data)
        if reserved is not None:
            yield from self._in_reservation(data, reserved, rows, count)
        else:
            yield from self._over_quota(name, kind["VCpuInfo"]["DefaultVCpus"] * count, market)
        if self._too_full(rows, count * _addresses(data)):
            message = "Amazon Autoscaling was unable to launch instances because there are not enough free addresses in"
            yield "InsufficientFreeAddresses", f"{message} the subnet associated with your AutoScaling group(s)."

    def _over_quota(self, name: str, vcpus: int, market: str) -> Iterator[tuple[str, str]]:
        quota = _bucket(name, market)
        if market == "Capacity Block":
            return
        used = self.quota_used(quota)
        limit = self.quota["ec2"][quota]
        if used + vcpus > limit:
            if market == "Spot":
                yield "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded."
            bucket = "the instance bucket that the specified instance type belongs to"
            message = f"You have requested more vCPU capacity than your current vCPU limit of {limit:g} allows for"
            yield "VcpuLimitExceeded", f"{message} {bucket}."

    def quota_used(self, quota: str) -> int:
        """vCPUs of running nodes and instances, and of unused reservations, that count for a quota."""
        pairs = list(self.running.elements())
        for row in self._ec2("describe_instances")["Reservations"]:
            running = [one for one in row["Instances"] if one["State"]["Name"] == "running"]
            markets = {"spot": "Spot"}
            pairs += [(one["InstanceType"], markets.get(one.get("InstanceLifecycle"), "On-Demand")) for one in running]
        for one in self.reservations:
            if one["state"] == "active" and one["reservationType"] == "default":
                pairs += [(one["instanceType"], "On-Demand")] * one["availableInstanceCount"]
        return sum(
            type_of(name)["VCpuInfo"]["DefaultVCpus"]
            for name, market in pairs
            if market != "Capacity Block" and _bucket(name, market) == quota
        )

    def _placed(
        self, data: Mapping[str, Any], kind: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], count: int
    ) -> Iterator[tuple[str, str]]:
        name = (data.get("Placement") or {}).get("GroupName")
        if not name:
            return
        strategy, state = {**dict.fromkeys(self.placement, ("cluster", "available")), **self.groups}.get(
            name, ("", "missing")
        )
        if state != "available":
            yield "InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown."
        if strategy not in kind["PlacementGroupInfo"]["SupportedStrategies"]:
            message = f"{strategy.title()} placement groups are not supported by the '{data['InstanceType']}' instance"
            yield "InvalidParameterCombination", f"{message} type."
        if strategy == "spread" and count > 7 * len({one["AvailabilityZone"] for one in rows}):
            yield "InsufficientInstanceCapacity", "a spread placement group takes 7 instances in a zone"  # (*)

    def _in_reservation(
        self, data: Mapping[str, Any], one: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], count: int
    ) -> Iterator[tuple[str, str]]:
        """A reservation is used by instances of its type and zone while it is active, and not by more than are free."""
        fits = one["instanceType"] == data["InstanceType"] and one["availabilityZoneId"] in {
            row["AvailabilityZoneId"] for row in rows
        }
        end = one.get("endDate")
        margin = timedelta(minutes=40) if one["reservationType"] == "capacity-block" else timedelta(0)
        is_over = end is not None and end - margin <= datetime.now(UTC)
        if not fits or one["state"] != "active" or is_over or one["availableInstanceCount"] < count:
            yield "ReservationCapacityExceeded", NO_ROOM
        group = (data.get("Placement") or {}).get("GroupName", "")
        if one.get("placementGroupArn", "").rpartition("/")[2] != group and one.get("placementGroupArn"):
            message = f"We currently do not have sufficient {data['InstanceType']} capacity"
            yield "InsufficientInstanceCapacity", f"{message} in the Availability Zone you requested."

    def _reservation(self, data: Mapping[str, Any]) -> dict[str, Any] | None:
        target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
        name = target.get("CapacityReservationId")
        known = {one["capacityReservationId"]: one for one in self.reservations}
        if name and name not in known:
            message = f"The capacity reservation '{name}' does not exist"
            raise Refused("InvalidParameterException", f"{message} (InvalidCapacityReservationId.NotFound)")
        return known.get(name)

    # ---- addresses and ways ----

    def _too_full(self, rows: Sequence[Mapping[str, Any]], needed: int) -> bool:
        return sum(self._free(one) for one in rows) < needed

    def _free(self, row: Mapping[str, Any]) -> int:
        return int(row["AvailableIpAddressCount"]) - self.taken[row["SubnetId"]]

    def free_prefix(self, subnet: str) -> bool:
        """True if an aligned /28 of a subnet holds nothing, looked for address by address."""
        (row,) = self.subnets([subnet])
        block = IPv4Network(row["CidrBlock"])
        used = {int(one) for one in (*list(block)[:4], block[-1])}
        for one in backend("ec2").enis.values():
            if one.subnet.id == subnet:
                used |= {int(IPv4Address(each["PrivateIpAddress"])) for each in one.private_ip_addresses}
        return any(used.isdisjoint(range(int(one[0]), int(one[0]) + 16)) for one in block.subnets(new_prefix=28))

    def _unreachable(self, row: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        """True if nodes in a subnet reach neither the control plane nor AWS's services."""
        vpc = backend("ec2").vpcs[row["VpcId"]]
        if not all(str(one).lower() == "true" for one in (vpc.enable_dns_support, vpc.enable_dns_hostnames)):
            return True
        return not self._way_out(row, data) or not self._passes(row)

    def _way_out(self, row: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        tables = self._ec2("describe_route_tables", Filters=[{"Name": "vpc-id", "Values": [row["VpcId"]]}])
        own = [
            one
            for one in tables["RouteTables"]
            if any(each.get("SubnetId") == row["SubnetId"] for each in one["Associations"])
        ]
        main = [one for one in tables["RouteTables"] if any(each.get("Main") for each in one["Associations"])]
        (table, *_) = own or main
        default = [one for one in table["Routes"] if one.get("DestinationCidrBlock") == "0.0.0.0/0"]
        if default and default[0].get("NatGatewayId"):
            nats = backend("ec2").nat_gateways
            nat = nats.get(default[0]["NatGatewayId"])
            return nat is not None and nat.state == "available"
        if default and default[0].get("GatewayId", "").startswith("igw-"):
            public = row["MapPublicIpOnLaunch"] and len(data.get("NetworkInterfaces") or [0]) == 1
            if public:
                return True
        found = self._ec2("describe_vpc_endpoints", Filters=[{"Name": "vpc-id", "Values": [row["VpcId"]]}])
        names = {one["ServiceName"].removeprefix(f"com.amazonaws.{REGION}.") for one in found["VpcEndpoints"]}
        return names >= PRIVATE_SERVICES

    def _passes(self, row: Mapping[str, Any]) -> bool:
        """True if the network ACL lets a node open connections to port 443, and lets the answers in."""
        filters = [{"Name": "association.subnet-id", "Values": [row["SubnetId"]]}]
        (acl,) = self._ec2("describe_network_acls", Filters=filters)["NetworkAcls"]

        def allows(egress: bool, port: int) -> bool:
            for one in sorted(acl["Entries"], key=lambda one: int(one["RuleNumber"])):
                ports = one.get("PortRange") or {"From": 0, "To": 65535}
                fits = one["Egress"] is egress and str(one["Protocol"]) in ("-1", "6") and one["CidrBlock"]
                if fits and ports["From"] <= port <= ports["To"]:
                    return bool(one["RuleAction"] == "allow")
            return False

        return allows(True, 443) and allows(False, 40000)

    # ---- what moto knows ----

    def _ec2(self, operation: str, **parameters: Any) -> Any:
        return getattr(client_of(self.url), operation)(**parameters)

    def _offers(self, name: str) -> set[str]:
        filters = [{"Name": "instance-type", "Values": [name]}]
        rows = self._ec2("describe_instance_type_offerings", LocationType="availability-zone-id", Filters=filters)
        return {one["Location"] for one in rows["InstanceTypeOfferings"]}

    def _kept(self, request: Received, cluster: str, kind: str, rest: str) -> dict[str, Any] | None:
        """Without a free prefix for the VPC CNI, no pod of the DNS server gets an address."""
        answer = super()._kept(request, cluster, kind, rest)
        if answer is None or kind != "addons" or rest != "coredns" or request.method != "GET":
            return answer
        values = self.addons[cluster].get("vpc-cni", {}).get("configurationValues") or "{}"
        if json.loads(values).get("env", {}).get("ENABLE_PREFIX_DELEGATION") != "true":
            return answer
        groups = backend("eks").clusters[cluster].nodegroups.values()
        if any(self.free_prefix(subnet) for one in groups for subnet in one.subnets):
            return answer
        why = (
            "InsufficientCidrBlocks: The specified subnet does not have enough free cidr blocks to satisfy the request."
        )
        issue = {"code": "InsufficientNumberOfReplicas", "message": f"failed to assign an IP address: {why}"}
        answer["addon"] |= {"status": "DEGRADED", "health": {"issues": [issue]}}
        return answer

    def _read(self, named: re.Match[str], text: str) -> str:
        answer = super()._read(named, text)
        if named[1] in self.broken and not named[2]:
            plain = json.loads(answer)
            plain["cluster"] |= {"status": "FAILED", "health": {"issues": [self.broken[named[1]]]}}
            return json.dumps(plain)
        return answer


_CLIENTS: dict[str, Any] = {}


def client_of(url: str) -> Any:
    """A client of EC2 for an endpoint, made once, with which the account itself asks moto."""
    if url not in _CLIENTS:
        _CLIENTS[url] = client(url, login=ITSELF)
    return _CLIENTS[url]


def type_of(name: str) -> Any:
    """An instance type as DescribeInstanceTypes gives it."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    return INSTANCE_TYPES[name]


def actions_of(request: Received) -> list[str]:
    """IAM actions that AWS demands for a request that changes something."""
    of_path = {
        r"/clusters": ["eks:CreateCluster", "eks:TagResource", "iam:PassRole"],
        r"/clusters/[^/]+/node-groups": ["eks:CreateNodegroup", "iam:PassRole", "ec2:RunInstances", "ec2:CreateTags"],
        r"/clusters/[^/]+/addons": ["eks:CreateAddon"],
        r"/clusters/[^/]+/access-entries": ["eks:CreateAccessEntry"],
        r"/clusters/[^/]+/access-entries/.+/access-policies": ["eks:AssociateAccessPolicy"],
    }
    if request.method != "POST":
        return []
    for pattern, names in of_path.items():
        if re.fullmatch(pattern, request.path):
            return names
    service = "iam" if request.operation.endswith(("Role", "RolePolicy")) else "ec2"
    return [f"{service}:{request.operation}"]


def _trust(arn: str, service: str) -> None:
    """A role that a service cannot assume is refused."""
    role = next((one for one in backend("iam").roles.values() if one.arn == arn), None)
    policy = json.loads(role.assume_role_policy_document) if role else {"Statement": []}
    trusted = [(one.get("Principal") or {}).get("Service") for one in policy["Statement"] if one["Effect"] == "Allow"]
    if service not in trusted:
        message = f"Role with arn: {arn}, could not be assumed because it does not exist or the trusted entity is not"
        raise Refused("InvalidParameterException", f"{message} correct")


def _template(named: Mapping[str, str]) -> dict[str, Any]:
    """Content of a version of a launch template."""
    template = backend("ec2").launch_templates[named["id"]]
    return dict(template.versions[int(named["version"]) - 1].data)


def _addresses(data: Mapping[str, Any]) -> int:
    """Addresses of an instance's interfaces; an efa-only one has none."""
    interfaces = data.get("NetworkInterfaces") or [{"InterfaceType": "interface"}]
    return sum(one["InterfaceType"] != "efa-only" for one in interfaces)


def _bucket(name: str, market: str) -> str:
    family = name.partition(".")[0]
    if market == "Spot":
        return SPOT["g" if family.startswith("g") else family[:2]]
    return ON_DEMAND[family[0] if family[0] in "gp" else "c"]


def _members(plain: Mapping[str, Any]) -> str:
    """A mapping in EC2's XML."""
    texts = {key: one.isoformat() if isinstance(one, datetime) else str(one) for key, one in plain.items()}
    return "".join(f"<{key}>{escape(one)}</{key}>" for key, one in texts.items())
