"""Simulations by IAM of what a login may do: parameters of the requests, and decisions in the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.eks import prediction
from gpuctl.eks.create import POLICIES
from gpuctl.eks.model import EksCluster
from gpuctl.eks.objects import ROLE_PATH, role_name

PASSED_TO = "eks.amazonaws.com"  # both roles: EKS itself passes the nodes' one on
ATTACH = "iam:AttachRolePolicy"
WORST_FIRST = ("explicitDeny", "implicitDeny")


def simulations(cluster: EksCluster, login: str, *, has_efa: bool) -> Iterator[Mapping[str, Any]]:
    """Parameters of SimulatePrincipalPolicy, with all actions that make the cluster. `login`: ARN of its role or user.

    A policy may allow changes of roles for some roles and some attached policies only, so that these are named.
    """
    partition, account = login.split(":")[1], login.split(":")[4]
    roles = {
        part: f"arn:{partition}:iam::{account}:role{ROLE_PATH if part == 'cluster' else '/'}"
        f"{role_name(cluster.name, cluster.region, part)}"
        for part in POLICIES
    }
    names = prediction.actions(cluster, has_efa=has_efa)
    of_roles = [one for one in names if one.startswith("iam:") and one != ATTACH]
    keys = {"aws:RequestedRegion": cluster.region}
    yield {"ActionNames": [one for one in names if not one.startswith("iam:")], "ContextEntries": _context(keys)}
    passed = {**keys, "iam:PassedToService": PASSED_TO}
    yield {"ActionNames": of_roles, "ResourceArns": list(roles.values()), "ContextEntries": _context(passed)}
    for part, policies in POLICIES.items():
        for policy in policies:
            attached = {**keys, "iam:PolicyARN": f"arn:{partition}:iam::aws:policy/{policy}"}
            yield {"ActionNames": [ATTACH], "ResourceArns": [roles[part]], "ContextEntries": _context(attached)}


def _context(keys: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"} for key, value in keys.items()
    ]


def decisions(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Action -> IAM's decision; of several resources the worst one counts."""
    decided: dict[str, set[str]] = {}
    for row in rows:
        of_resources = [str(one["EvalResourceDecision"]) for one in row.get("ResourceSpecificResults") or ()]
        decided.setdefault(str(row["EvalActionName"]), set()).update([str(row["EvalDecision"]), *of_resources])
    return {
        action: next((one for one in WORST_FIRST if one in values), "allowed" if values == {"allowed"} else "")
        for action, values in decided.items()
    }
