"""The policies of examples/eks/policies, and an account in which nothing is allowed but what one of them names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.rig.eks_endpoint import ACCOUNT, Received, backend
from tests.rig.eks_refusing_account import ITSELF, Refused, RefusingAccount, actions_of
from tests.rig.iam_statements import allowed
from tests.rig.source_files import ROOT

FOLDER = ROOT / "examples/eks/policies"
VERSIONS = {
    "2016-11-15": "ec2",
    "2010-05-08": "iam",
    "2011-06-15": "sts",
    "2012-06-01": "elasticloadbalancing",
    "2015-12-01": "elasticloadbalancing",
    "2010-05-15": "cloudformation",
}
JSON = {
    "ListServiceQuotas": "servicequotas:ListServiceQuotas",
    "GetResources": "tag:GetResources",
    "DescribeRepositories": "ecr:DescribeRepositories",
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
    """Refuses what no statement allows: by action and conditions, and by resource where it is an IAM role. `used`: what
    was asked."""

    used: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def _permissions(self, request: Received) -> None:
        if request.login == ITSELF:
            return
        rows = demanded(self, request)
        self.used |= {action for action, *_ in rows}
        refused = {action for action, resource, context in rows if not allowed(self.allow, action, resource, context)}
        if refused:
            self.refused |= refused
            raise Refused("AccessDenied", f"User: x is not authorized to perform: {min(refused)}")


def demanded(account: RefusingAccount, request: Received) -> list[tuple[str, str, dict[str, str]]]:
    """Actions, resources and keys of conditions of a request; "*" for a resource that is no role."""
    for method, pattern, operation in EKS:
        if request.method == method and re.fullmatch(pattern, request.path):
            more = actions_of(request) if method == "POST" else []
            names = {f"eks:{operation}", *(one for one in more if one != "iam:PassRole")}
            context = _cluster_tags(request.path) if method == "DELETE" else {}
            return [*((one, "*", context) for one in sorted(names)), *_passed(request, more)]
    return _of_query(account, request)


def _of_query(account: RefusingAccount, request: Received) -> list[tuple[str, str, dict[str, str]]]:
    if request.operation.endswith("LogGroup") or request.operation.endswith("LogGroups"):
        name = json.loads(request.body).get("logGroupName", "*")
        return [(f"logs:{request.operation}", f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:{name}", {})]
    if request.operation in JSON:
        return [(JSON[request.operation], "*", {})]
    query = {key: values[0] for key, values in parse_qs(request.body.decode(errors="replace")).items()}
    if query.get("Version") not in VERSIONS:
        raise AssertionError(f"no action is known for {request.method} {request.path}")
    service = VERSIONS[query["Version"]]
    resource, context = _role(service, query), _context(account, query) if service == "ec2" else {}
    if "PolicyArn" in query:
        context = {"iam:PolicyARN": query["PolicyArn"]}
    found = [(f"{service}:{request.operation}", resource, context)]
    if request.operation == "CreateRole" and any(key.startswith("Tags.") for key in query):
        found.append(("iam:TagRole", resource, {}))
    if any(key.startswith("TagSpecification") for key in query) and request.operation.startswith("Create"):
        found.append(("ec2:CreateTags", "*", {}))
    return found


def _role(service: str, query: Mapping[str, str]) -> str:
    """ARN of the role that a request names; "*" if it names none."""
    if service != "iam" or "RoleName" not in query:
        return "*"
    path = query.get("Path") or ("/gpuctl/" if query["RoleName"].endswith("-cluster") else "/")
    return f"arn:aws:iam::{ACCOUNT}:role{path}{query['RoleName']}"


def _context(account: RefusingAccount, query: Mapping[str, str]) -> dict[str, str]:
    """Tags that all resources of a request have."""
    if query.get("GroupName") in account.placement:
        return {f"aws:ResourceTag/{key}": one for key, one in account.placement[query["GroupName"]].items()}
    ec2 = backend("ec2")
    tags = [ec2.tags.get(value, {}) for key, value in query.items() if re.fullmatch(r"\w+Id", key) and "-" in value]
    shared = [(key, one) for key, one in tags[0].items() if all(key in each for each in tags)] if tags else []
    return {f"aws:ResourceTag/{key}": one for key, one in shared}


def _cluster_tags(path: str) -> dict[str, str]:
    cluster = backend("eks").clusters.get(path.split("/")[2])
    return {f"aws:ResourceTag/{key}": one for key, one in ((cluster.tags if cluster else None) or {}).items()}


def _passed(request: Received, more: Iterable[str]) -> list[tuple[str, str, dict[str, str]]]:
    """A role is passed to the service that is asked."""
    if "iam:PassRole" not in more:
        return []
    body = json.loads(request.body)
    arn = unquote(body.get("roleArn") or body.get("nodeRole"))
    return [("iam:PassRole", arn, {"iam:PassedToService": "eks.amazonaws.com"})]
