"""moto with what it lacks for clusters: addons, access entries, placement groups, slow states, interfaces in use.

Added in front of moto: addons, access entries and placement groups are kept here; a new cluster, node group or addon is
CREATING when it is read first; a node group has instances, whose interfaces the VPC CNI leaves behind when it goes;
subnets, groups and VPCs with interfaces are in use, as are a VPC with subnets and a role with policies; a client token
of NAT gateways is honoured; a page is no larger than AWS takes. moto's own objects are read through its backends, as
the server runs in this process.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest

from tests.rig.aws_endpoint import ERROR, Answer
from tests.rig.aws_model import beyond_limits

ACCOUNT, REGION = "123456789012", "us-east-1"
XML = '<{0}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{1}</{0}Response>'
IN_CLUSTER = re.compile(r"/clusters/([^/]+)/(addons|access-entries)(?:/(.+))?")
CLUSTER_OR_GROUP = re.compile(r"/clusters/([^/]+)(?:/node-groups/([^/]+))?")
NOT_FOUND: Answer = (404, json.dumps({"__type": "ResourceNotFoundException", "message": "not found"}))


@dataclass(frozen=True)
class Received:
    """A request. `operation`: of the query and JSON protocols; of REST, the path. `query`: of its address. `login`:
    id of the access key that signed it."""

    operation: str
    method: str
    path: str
    body: bytes
    query: str = ""
    login: str = ""


Forward = Callable[[], Answer]  # moto's own answer


@dataclass
class Additions:
    """State beside moto's. `answers`: operation or path -> answer. `failing`: node group -> a health issue with which
    it cannot be made. `protected`: clusters with deletion protection. `lost`: operations or paths that are carried
    out once with a bad gateway as the answer."""

    answers: dict[str, Answer] = field(default_factory=dict)
    failing: dict[str, dict[str, Any]] = field(default_factory=dict)
    protected: set[str] = field(default_factory=set)
    addons: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    entries: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    placement: dict[str, dict[str, str]] = field(default_factory=dict)
    young: set[str] = field(default_factory=set)
    tokens: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def respond(self, request: Received, forward: Forward) -> Answer:
        if request.operation in self.lost and request.method != "GET":
            self.lost.discard(request.operation)
            self.respond(request, forward)
            return 502, "<html>bad gateway</html>"
        if request.operation in self.answers:
            return self.answers[request.operation]
        inside = IN_CLUSTER.fullmatch(request.path)
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
        if request.operation in ("CreateNatGateway", "DeleteNatGateway", "DeleteSubnet"):
            return self._network(request, forward)
        named = CLUSTER_OR_GROUP.fullmatch(request.path)
        if request.method == "DELETE" and named and named[2]:
            self._leave_interfaces(named[1], named[2])
        status, text = forward()
        if status != 200 or not request.path.startswith("/clusters"):
            return status, text
        if request.method == "POST":
            plain = json.loads(text)
            one = plain.get("cluster") or plain.get("nodegroup") or {}
            self.young.add(f"{one.get('name') or one.get('clusterName')}/{one.get('nodegroupName', '')}")
        elif request.method == "GET" and named:
            return 200, self._read(named, text)
        elif named and not named[2]:
            self.addons.pop(named[1], None)
            self.entries.pop(named[1], None)
        return status, text

    def _network(self, request: Received, forward: Forward) -> Answer:
        """What AWS does beside the change: one gateway for a token; its interface goes with it; routes let go."""
        ec2, query = backend("ec2"), parse_qs(request.body.decode())
        token = query.get("ClientToken", [""])[0]
        if token in self.tokens:
            return 200, self.tokens[token]
        status, text = forward()
        if request.operation == "CreateNatGateway":
            self.tokens[token] = text
        for gateway in ec2.nat_gateways.values():
            gateway._eni.description = f"Interface for NAT Gateway {gateway.id}"
            if gateway.state == "deleted":
                ec2.enis.pop(gateway._eni.id, None)
        if request.operation == "DeleteSubnet":
            for table in ec2.route_tables.values():
                used = table._associations
                table._associations = {key: one for key, one in used.items() if one != query["SubnetId"][0]}
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
        plain = self._kept(request, cluster, kind, rest)
        return (200, json.dumps(plain)) if plain is not None else NOT_FOUND

    def _kept(self, request: Received, cluster: str, kind: str, rest: str) -> dict[str, Any] | None:
        """Addons and access entries of a cluster; None for one that does not exist."""
        store = (self.addons if kind == "addons" else self.entries).setdefault(cluster, {})
        body = json.loads(request.body or b"{}")
        name_of, member = ("addonName", "addon") if kind == "addons" else ("principalArn", "accessEntry")
        if rest.endswith("/access-policies"):
            policies = store[rest.removesuffix("/access-policies")].setdefault("policies", [])
            if request.method == "POST" and body["policyArn"] not in policies:
                policies.append(body["policyArn"])
            return {"associatedAccessPolicies": [{"policyArn": one} for one in policies]}
        if request.method == "POST":
            assert body[name_of] not in store, "made twice"
            store[body[name_of]] = {**body, "status": "CREATING"}
            return {member: store[body[name_of]]}
        if not rest:
            return {"addons" if kind == "addons" else "accessEntries": list(store)}
        if rest not in store:
            return None
        read = dict(store[rest])
        store[rest]["status"] = "ACTIVE"
        return {member: read}

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

    backends: Any = get_backend(service)  # type: ignore[call-overload]
    return backends[ACCOUNT]["aws" if service == "iam" else REGION]


@contextmanager
def eks_endpoint(more: Additions | None = None) -> Iterator[tuple[str, Additions]]:
    """URL of moto with additions (`more`, or plain ones), and these."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    additions, moto = more or Additions(), DomainDispatcherApplication(create_backend_app)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(additions, moto))
    server.daemon_threads = True  # of connections that clients keep
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        for service in (
            "ec2",
            "eks",
            "iam",
            "logs",
            "ecr",
            "elbv2",
            "cloudformation",
        ):  # which may have objects of other tests, and no policies of AWS
            backend(service).reset()
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", additions
        finally:
            server.shutdown()
            server.socket.close()
            thread.join()


def _handler(additions: Additions, moto: Any) -> type[http.server.BaseHTTPRequestHandler]:
    """A handler that asks the additions first, and keeps connections: moto's own server closes them."""
    from werkzeug.test import EnvironBuilder, run_wsgi_app

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            path = unquote(path)
            headers: dict[str, str] = {}

            def forward() -> Answer:
                builder = EnvironBuilder(
                    self.path,
                    f"http://{self.headers['Host']}",
                    method=self.command,
                    headers=self.headers.items(),
                    data=body,
                )
                parts, status, answered = run_wsgi_app(moto, builder.get_environ(), buffered=True)
                kept = {name: value for name, value in answered.items() if name.lower().startswith("x-amzn")}
                headers.update(kept)
                return int(status.split()[0]), b"".join(parts).decode()

            found = re.search(rb"Action=(\w+)", body)
            target = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
            operation = found[1].decode() if found else target or path
            login = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
            received = Received(operation, self.command, path, body, query, login[1] if login else "")
            status, text = beyond_limits(body) or additions.respond(received, forward)
            plain = text.encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Type": "text/xml", "Content-Length": str(len(plain))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(plain)

        do_POST = do_GET = do_DELETE = _answer  # noqa: N815 - names of the standard library

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
