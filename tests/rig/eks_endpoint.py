"""moto with what it lacks for clusters: addons, access entries, placement groups, slow states, interfaces in use.

Added in front of moto: addons, access entries and placement groups are kept here; a new cluster, node group or addon is
CREATING when it is read first; a node group has instances, whose interfaces the VPC CNI leaves behind when it goes;
subnets, groups and VPCs with interfaces are in use, as are a VPC with subnets and a role with policies; a client token
of NAT gateways is honoured. moto's own objects are read through its backends, as the server runs in this process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest

from tests.rig.aws_endpoint import ERROR, Answer, Forward, Received, moto_endpoint, responding_proxy

ACCOUNT, REGION = "123456789012", "us-east-1"
XML = '<{0}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{1}</{0}Response>'
IN_CLUSTER = re.compile(r"/clusters/([^/]+)/(addons|access-entries)(?:/(.+))?")
CLUSTER_OR_GROUP = re.compile(r"/clusters/([^/]+)(?:/node-groups/([^/]+))?")
NOT_FOUND: Answer = (404, json.dumps({"__type": "ResourceNotFoundException", "message": "not found"}))


@dataclass
class Additions:
    """State beside moto's. `answers`: operation or path -> answer. `failing`: node group -> a health issue with which
    it cannot be made. `protected`: clusters with deletion protection. `received`: operations that changed something."""

    answers: dict[str, Answer] = field(default_factory=dict)
    failing: dict[str, dict[str, Any]] = field(default_factory=dict)
    protected: set[str] = field(default_factory=set)
    addons: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    entries: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    placement: dict[str, dict[str, str]] = field(default_factory=dict)
    young: set[str] = field(default_factory=set)
    tokens: dict[str, str] = field(default_factory=dict)

    def respond(self, request: Received, forward: Forward) -> Answer:
        if request.operation in self.answers:
            return self.answers[request.operation]
        inside = IN_CLUSTER.fullmatch(request.path.partition("?")[0])
        if inside:
            return self._in_cluster(request, inside)
        if request.operation.endswith("PlacementGroups") or request.operation.endswith("PlacementGroup"):
            return self._placement(request)
        refused = self._in_use(request)
        if refused:
            return 400, ERROR.format(code=refused, message="it is in use")
        return self._slow(request, forward)

    # ---- slow states and tokens ----

    def _slow(self, request: Received, forward: Forward) -> Answer:
        token = re.search(rb"ClientToken=(\w+)", request.body)
        if request.operation == "CreateNatGateway" and token:
            key = token[1].decode()
            if key not in self.tokens:
                self.tokens[key] = forward()[1]
                for one in backend("ec2").nat_gateways.values():
                    one._eni.description = f"Interface for NAT Gateway {one.id}"  # noqa: SLF001
            return 200, self.tokens[key]
        named = CLUSTER_OR_GROUP.fullmatch(request.path.partition("?")[0])
        if request.method == "DELETE" and named and named[2]:
            self._leave_interfaces(named[1], named[2])
        status, text = forward()
        if request.operation == "DeleteNatGateway":
            for one in backend("ec2").nat_gateways.values():
                if one.state == "deleted":
                    backend("ec2").enis.pop(one._eni.id, None)  # noqa: SLF001
        if request.method == "POST" and request.path.startswith("/clusters") and status == 200:
            plain = json.loads(text)
            one = plain.get("cluster") or plain.get("nodegroup") or {}
            self.young.add(f"{one.get('name') or one.get('clusterName')}/{one.get('nodegroupName', '')}")
        elif request.method == "GET" and named and status == 200:
            text = self._read(named, text)
        elif request.method == "DELETE" and named and not named[2] and status == 200:
            self.addons.pop(named[1], None)
            self.entries.pop(named[1], None)
        return status, text

    def _read(self, named: re.Match[str], text: str) -> str:
        plain = json.loads(text)
        one = plain.get("cluster") or plain.get("nodegroup")
        if one is None:
            return text
        if named[1] in self.protected and not named[2]:
            one["deletionProtection"] = True
        key = f"{named[1]}/{named[2] or ''}"
        if key in self.young:
            self.young.discard(key)
            one["status"] = "CREATING"
        elif named[2] in self.failing:
            one["status"] = "CREATE_FAILED"
            one["health"] = {"issues": [self.failing[named[2]]]}
        return json.dumps(plain)

    # ---- what moto does not have ----

    def _in_cluster(self, request: Received, path: re.Match[str]) -> Answer:
        cluster, kind, rest = path[1], path[2], unquote(path[3] or "")
        if cluster not in backend("eks").clusters:
            return NOT_FOUND
        store = (self.addons if kind == "addons" else self.entries).setdefault(cluster, {})
        body = json.loads(request.body or b"{}")
        name_of, member = ("addonName", "addon") if kind == "addons" else ("principalArn", "accessEntry")
        if rest.endswith("/access-policies"):
            policies = store[rest.removesuffix("/access-policies")].setdefault("policies", [])
            if request.method == "POST" and body["policyArn"] not in policies:
                policies.append(body["policyArn"])
            return 200, json.dumps({"associatedAccessPolicies": [{"policyArn": one} for one in policies]})
        if request.method == "POST":
            if body[name_of] in store:
                return 409, json.dumps({"__type": "ResourceInUseException", "message": "it exists"})
            store[body[name_of]] = {**body, "status": "CREATING"}
            return 200, json.dumps({member: store[body[name_of]]})
        if not rest:
            return 200, json.dumps({"addons" if kind == "addons" else "accessEntries": list(store)})
        if rest not in store:
            return NOT_FOUND
        answer = json.dumps({member: store[rest]})
        store[rest]["status"] = "ACTIVE"
        return 200, answer

    def _placement(self, request: Received) -> Answer:
        query = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
        name = query.get("GroupName", "")
        if request.operation == "CreatePlacementGroup":
            if name in self.placement:
                return 400, ERROR.format(code="InvalidPlacementGroup.Duplicate", message="it exists")
            keys = [key for key in query if re.fullmatch(r"TagSpecification\.1\.Tag\.\d+\.Key", key)]
            self.placement[name] = {query[key]: query[key[:-3] + "Value"] for key in keys}
            inner = f"<placementGroup><groupName>{name}</groupName><state>available</state></placementGroup>"
            return 200, XML.format(request.operation, inner)
        if request.operation == "DeletePlacementGroup":
            if self.placement.pop(name, None) is None:
                return 400, ERROR.format(code="InvalidPlacementGroup.Unknown", message="it does not exist")
            return 200, XML.format(request.operation, "<return>true</return>")
        tag, value = query.get("Filter.1.Name", "").removeprefix("tag:"), query.get("Filter.1.Value.1", "")
        items = [
            f"<item><groupName>{name}</groupName><state>available</state><tagSet>"
            + "".join(f"<item><key>{key}</key><value>{text}</value></item>" for key, text in tags.items())
            + "</tagSet></item>"
            for name, tags in self.placement.items()
            if tags.get(tag) == value
        ]
        return 200, XML.format(request.operation, f"<placementGroupSet>{''.join(items)}</placementGroupSet>")

    # ---- in use ----

    def _in_use(self, request: Received) -> str:
        """Code of the refusal of a deletion that moto carries out and AWS does not."""
        query = {key: values[0] for key, values in parse_qs(request.body.decode(errors="replace")).items()}
        ec2 = backend("ec2")
        interfaces = list(ec2.enis.values())
        if request.operation == "DeleteSubnet":
            used = any(one.subnet.id == query["SubnetId"] for one in interfaces)
            nat = any(
                one.subnet_id == query["SubnetId"] and one.state != "deleted" for one in ec2.nat_gateways.values()
            )
            return "DependencyViolation" * (used or nat)
        if request.operation == "DeleteSecurityGroup":
            used = any(one.id == query["GroupId"] for eni in interfaces for one in eni.group_set)
            return "DependencyViolation" * used
        if request.operation == "DeleteVpc":
            vpc = query["VpcId"]
            subnets = [one for zone in ec2.subnets.values() for one in zone.values() if one.vpc_id == vpc]
            gateways = [one for one in ec2.internet_gateways.values() if one.vpc and one.vpc.id == vpc]
            groups = [one for one in ec2.groups[vpc].values() if one.name != "default"]
            tables = [one for one in ec2.route_tables.values() if one.vpc_id == vpc and not one.main_association_id]
            return "DependencyViolation" * bool(subnets or gateways or groups or tables)
        if request.operation == "ReleaseAddress":
            allocation = query.get("AllocationId")
            gateways = [one for one in ec2.nat_gateways.values() if one.state != "deleted"]
            nat = any(one.get("allocationId") == allocation for gateway in gateways for one in gateway.address_set)
            return "InvalidIPAddress.InUse" * nat
        return ""

    def _leave_interfaces(self, cluster: str, group: str) -> None:
        """The VPC CNI leaves an interface behind, with its tags."""
        made = backend("eks").clusters[cluster].nodegroups.get(group)
        if made is None:
            return
        ec2 = backend("ec2")
        subnet = ec2.get_subnet(made.subnets[0])
        tags = {
            "node.k8s.amazonaws.com/instance_id": "i-0a1b2c3d4e5f60718",
            "node.k8s.amazonaws.com/createdAt": (datetime.now(UTC) - timedelta(hours=1)).isoformat(),
            "cluster.k8s.amazonaws.com/name": cluster,
        }
        ec2.create_network_interface(subnet, [], description="aws-K8S-i-0a1b2c3d4e5f60718", tags=tags)


def backend(service: str) -> Any:
    """moto's own objects of a service."""
    from moto.backends import get_backend

    return get_backend(service)[ACCOUNT]["aws" if service == "iam" else REGION]  # type: ignore[index]


@contextmanager
def eks_endpoint() -> Iterator[tuple[str, Additions]]:
    """URL of moto with additions, and these."""
    additions = Additions()
    with pytest.MonkeyPatch.context() as patch, moto_endpoint() as behind, responding_proxy(behind, additions.respond) as url:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")  # read when moto is asked for the first time
        yield url, additions
