"""The policies of examples/eks/policies, and an account in which nothing is allowed but what one of them names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.rig.eks_endpoint import ACCOUNT, Received
from tests.rig.eks_refusing_account import Refused, RefusingAccount, actions_of
from tests.rig.iam_statements import allowed
from tests.rig.source_files import ROOT

FOLDER = ROOT / "examples/eks/policies"
VERSIONS = {
    "2016-11-15": "ec2",
    "2010-05-08": "iam",
    "2011-06-15": "sts",
    "2012-06-01": "elasticloadbalancing",
    "2015-12-01": "elasticloadbalancing",
}
# Method and path of EKS's API -> operation.
EKS = (
    ("GET", r"/clusters", "ListClusters"),
    ("POST", r"/clusters", "CreateCluster"),
    ("GET", r"/clusters/[^/]+", "DescribeCluster"),
    ("DELETE", r"/clusters/[^/]+", "DeleteCluster"),
    ("GET", r"/clusters/[^/]+/node-groups", "ListNodegroups"),
    ("POST", r"/clusters/[^/]+/node-groups", "CreateNodegroup"),
    ("GET", r"/clusters/[^/]+/node-groups/[^/]+", "DescribeNodegroup"),
    ("DELETE", r"/clusters/[^/]+/node-groups/[^/]+", "DeleteNodegroup"),
    ("GET", r"/clusters/[^/]+/fargate-profiles", "ListFargateProfiles"),
    ("GET", r"/clusters/[^/]+/addons", "ListAddons"),
    ("POST", r"/clusters/[^/]+/addons", "CreateAddon"),
    ("GET", r"/clusters/[^/]+/addons/[^/]+", "DescribeAddon"),
    ("DELETE", r"/clusters/[^/]+/addons/[^/]+", "DeleteAddon"),
    ("GET", r"/clusters/[^/]+/access-entries", "ListAccessEntries"),
    ("POST", r"/clusters/[^/]+/access-entries", "CreateAccessEntry"),
    ("GET", r"/clusters/[^/]+/access-entries/.+/access-policies", "ListAssociatedAccessPolicies"),
    ("POST", r"/clusters/[^/]+/access-entries/.+/access-policies", "AssociateAccessPolicy"),
    ("GET", r"/clusters/[^/]+/access-entries/.+", "DescribeAccessEntry"),
    ("GET", r"/cluster-versions", "DescribeClusterVersions"),
    ("GET", r"/addons/supported-versions", "DescribeAddonVersions"),
)


def statements(name: str) -> list[dict[str, Any]]:
    """Statements of a policy."""
    plain: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return list(plain["Statement"])


def actions(name: str) -> set[str]:
    """Actions that a policy allows."""
    return {action for one in statements(name) for action in one["Action"]}


@dataclass
class EnforcingAccount(RefusingAccount):
    """Refuses what no statement allows: by action, and by resource where it is an IAM role. `used`: what was asked."""

    used: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    looking: bool = False  # the account itself asks moto, while it answers a request

    def _ec2(self, operation: str, **parameters: Any) -> Any:
        self.looking = True
        try:
            return super()._ec2(operation, **parameters)
        finally:
            self.looking = False

    def _permissions(self, request: Received) -> None:
        if self.looking:
            return
        for action, resource in demanded(request):
            self.used.add(action)
            if not allowed(self.allow, action, resource, {}):
                self.refused.add(action)
                self.denied.add(action)
        super()._permissions(request)
        denied = self.denied & {action for action, _ in demanded(request)}
        self.denied.clear()
        if denied:
            raise Refused("AccessDenied", f"User: x is not authorized to perform: {min(denied)}")


def demanded(request: Received) -> list[tuple[str, str]]:
    """Actions and resources of a request; "*" for a resource that is no role."""
    for method, pattern, operation in EKS:
        if request.method == method and re.fullmatch(pattern, request.path):
            more = actions_of(request) if method == "POST" else []
            names = {f"eks:{operation}", *(one for one in more if one != "iam:PassRole")}
            return [*((one, "*") for one in sorted(names)), *_passed(request, more)]
    if request.operation == "ListServiceQuotas":
        return [("servicequotas:ListServiceQuotas", "*")]
    query = {key: values[0] for key, values in parse_qs(request.body.decode(errors="replace")).items()}
    if query.get("Version") not in VERSIONS:
        raise AssertionError(f"no action is known for {request.method} {request.path}")
    service = VERSIONS[query["Version"]]
    resource = "*"
    if service == "iam" and "RoleName" in query:
        path = query.get("Path") or ("/gpuctl/" if query["RoleName"].endswith("-cluster") else "/")
        resource = f"arn:aws:iam::{ACCOUNT}:role{path}{query['RoleName']}"
    found = [(f"{service}:{request.operation}", resource)]
    if request.operation == "CreateRole" and any(key.startswith("Tags.") for key in query):
        found.append(("iam:TagRole", resource))
    if any(key.startswith("TagSpecification") for key in query) and request.operation.startswith("Create"):
        found.append(("ec2:CreateTags", "*"))
    return found


def _passed(request: Received, more: Iterable[str]) -> list[tuple[str, str]]:
    if "iam:PassRole" not in more:
        return []
    body = json.loads(request.body)
    return [("iam:PassRole", unquote(body.get("roleArn") or body.get("nodeRole")))]
