"""Make a cluster step by step. Each step looks for its object first, so that a run goes on where another ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, ok, warn
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import health, network, node_template
from gpuctl.eks import state as states
from gpuctl.eks.create_network import efa_group, make_vpc
from gpuctl.eks.create_nodes import GONE, node_groups
from gpuctl.eks.maker import Design, Maker
from gpuctl.eks.network import Home
from gpuctl.eks.objects import (
    EXPIRES,
    ROLE_PATH,
    SERVICES,
    Kind,
    Object,
    State,
    digest,
    expiry,
    from_answer,
    role_name,
    tag_list,
)
from gpuctl.eks.parts import removal
from gpuctl.eks.wait import ADDONS_DOWN, ADDONS_UP, CLUSTER_UP, LISTED, Waiter

POLICIES = {
    "cluster": ("AmazonEKSClusterPolicy",),
    "node": ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy"),
}
ADMIN_POLICY = "arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


def roles(maker: Maker) -> None:
    """The cluster's role is the first object of all: its id is in every token."""
    for part, service in SERVICES.items():
        trust = {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Principal": {"Service": service}, "Action": ["sts:AssumeRole"]},
            ],
        }
        ends = expiry(datetime.now(UTC), maker.cluster.ttl_hours) if maker.state.first_role is None else ""
        more = {EXPIRES: ends} if ends else {}

        def request(part: str = part, trust: Any = trust, more: Any = more) -> Request:
            parameters = {
                "RoleName": role_name(maker.cluster.name, maker.cluster.region, part),
                "Path": ROLE_PATH if part == "cluster" else "/",
                "AssumeRolePolicyDocument": json.dumps(trust),
                "Tags": tag_list(maker.tags(part, more)),
            }
            return Request(f"make the {part} role", "iam", "CreateRole", "", parameters)

        role = maker.ensure(Kind.ROLE, part, request, "Role")
        if more and not role.tags.get(EXPIRES):
            role = replace(role, tags={**role.tags, **more})
            maker.state.add(role)
        attached = role.data.get("policies", ())
        for policy in POLICIES[part]:
            arn = f"arn:{maker.partition}:iam::aws:policy/{policy}"
            if arn not in attached:
                parameters = {"RoleName": role.name, "PolicyArn": arn}
                maker.act(f"attach {policy} to the {part} role", "iam", "AttachRolePolicy", parameters)


def homes(maker: Maker) -> tuple[list[str], list[Home]]:
    """Subnets of the control plane, and those for nodes."""
    if maker.cluster.vpc is not None:
        chosen = [one.name for one in make_vpc(maker) if one.part.startswith(f"{network.PRIVATE}-")]
    else:
        chosen = list(maker.cluster.subnets)
    request = Request("read the subnets", "ec2", "DescribeSubnets", "Subnets", {"SubnetIds": chosen})

    def poll() -> tuple[list[Any] | None, str]:
        listed = states.described(maker.aws, {"subnets": request})["subnets"]
        return (listed, "") if len(listed) == len(chosen) else (None, f"{len(listed)} of {len(chosen)} are listed")

    rows = maker.waiter.until(LISTED, poll)
    free = [Home(one["SubnetId"], one["AvailabilityZoneId"], int(one["AvailableIpAddressCount"])) for one in rows]
    maker.vpc = str(rows[0]["VpcId"])
    return chosen, free


def control_plane(maker: Maker, subnets: Sequence[str]) -> str:
    """Make the cluster and wait for it; returns the id of its security group."""
    cluster, role = maker.cluster, maker.needed(Kind.ROLE, "cluster")
    access = {"endpointPublicAccess": cluster.public_endpoint, "endpointPrivateAccess": cluster.private_endpoint}
    if cluster.public_endpoint and cluster.allowed:
        access["publicAccessCidrs"] = [str(block) for block in cluster.allowed]  # type: ignore[assignment]
    content: dict[str, Any] = {
        "name": cluster.name,
        "version": cluster.version,
        "roleArn": role.data["Arn"],
        "resourcesVpcConfig": {"subnetIds": list(subnets), **access},
        "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
        "bootstrapSelfManagedAddons": False,
    }

    def request() -> Request:
        plain = {**content, "tags": maker.tags("control-plane")}
        plain["clientRequestToken"] = maker.token("cluster", content)
        return Request(f"make the cluster {cluster.name}", "eks", "CreateCluster", "", plain)

    maker.once_role_is_known(lambda: maker.ensure(Kind.CLUSTER, "control-plane", request, "cluster"))

    def poll() -> tuple[Mapping[str, Any] | None, str]:
        parameters = {"name": cluster.name}
        reading = Request(f"read the cluster {cluster.name}", "eks", "DescribeCluster", "", parameters)
        row = maker.aws.read(reading, lambda answer: answer["cluster"])[0]
        if row["status"] == "FAILED":
            wrong = "; ".join(map(str, health.issues(row))) or "AWS names no reason"
            raise GpuctlError(f"make the cluster {cluster.name}", wrong, "destroy it, and make it again")
        is_up = row["status"] in ("ACTIVE", "UPDATING")
        return (row if is_up else None), str(row["status"])

    row = maker.waiter.until(CLUSTER_UP, poll)
    maker.state.add(from_answer(Kind.CLUSTER, row, cluster.name, cluster.region))
    return str((row.get("resourcesVpcConfig") or {}).get("clusterSecurityGroupId") or "")


def access(maker: Maker) -> None:
    """Access entries of administrators."""
    policy = ADMIN_POLICY.format(partition=maker.partition)
    for arn in maker.cluster.admins:
        of_cluster = {"clusterName": maker.cluster.name, "principalArn": arn}

        def request(arn: str = arn, of_cluster: Mapping[str, str] = of_cluster) -> Request:
            plain = {**of_cluster, "tags": maker.tags(digest(arn)), "clientRequestToken": maker.token("entry", arn)}
            return Request(f"let {arn} administer the cluster", "eks", "CreateAccessEntry", "", plain)

        found = next((one for one in maker.state.of(Kind.ENTRY) if one.name == arn), None)  # its own login has one
        entry = found or maker.ensure(Kind.ENTRY, digest(arn), request, "accessEntry")
        if policy not in entry.data.get("policies", ()):
            parameters = {**of_cluster, "policyArn": policy, "accessScope": {"type": "cluster"}}
            maker.act(f"let {arn} administer the cluster", "eks", "AssociateAccessPolicy", parameters)


def addons(maker: Maker, names: Sequence[str]) -> list[Finding]:
    """Make addons and wait for them; a degraded one is a warning, as nodes may come later."""
    for name in names:
        remove_failed_addon(maker, name)
        content = {"clusterName": maker.cluster.name, "addonName": name}
        values = node_template.addon_values(maker.cluster, name)
        content |= {"configurationValues": values} if values else {}

        def request(name: str = name, content: Mapping[str, str] = content) -> Request:
            plain = {**content, "resolveConflicts": "OVERWRITE", "tags": maker.tags(name)}
            # No token of ours: AWS could answer for an addon that failed and was removed. Its name is unique anyway.
            return Request(f"make the addon {name}", "eks", "CreateAddon", "", plain)

        found = next((one for one in maker.state.of(Kind.ADDON) if one.name == name), None)
        if found is None:
            maker.ensure(Kind.ADDON, name, request, "addon")
    return [judged_addon(name, one) for name, one in maker.settled(Kind.ADDON, names, ADDONS_UP).items()]


def remove_failed_addon(maker: Maker, name: str) -> None:
    """Remove an addon of ours that AWS could not make, or whose removal has begun, so that it is made again."""
    found = next((one for one in maker.state.of(Kind.ADDON) if one.name == name and one.ours), None)
    if found is None or found.state not in ("CREATE_FAILED", "DELETE_FAILED", "DELETING"):
        return
    doing = f"remove the failed addon {name}"
    maker.waiter.progress(f"addon {name} is {found.state}: removing it, to make it again")
    if found.state != "DELETING":
        parameters = {"clusterName": maker.cluster.name, "addonName": name}
        try:
            maker.act(doing, "eks", "DeleteAddon", parameters)
        except GpuctlError as error:
            if not states.is_absent(error):
                raise

    maker.removed(Kind.ADDON, name, ADDONS_DOWN, doing)


def judged_addon(name: str, addon: Object | None) -> Finding:
    """Finding on an addon; None for one that AWS does not list."""
    subject = f"addon {name}"
    if addon is None:
        return fail("addon", subject, GONE, "see who removed it, then run `gpuctl eks resume`")
    if addon.state == "ACTIVE":
        return ok("addon", subject, "ACTIVE")
    found = health.issues(addon.data)
    message = f"{addon.state}: {'; '.join(map(str, found)) or 'AWS names no reason'}"
    hint = next((text for text in map(health.hint, found) if text), "look at it in the EKS console")
    return warn("addon", subject, message, hint) if addon.state == "DEGRADED" else fail("addon", subject, message, hint)


def refuse_removal(state: State) -> None:
    """InvalidInput in the middle of a removal: what is made beside it would be left, and cost."""
    for one in removal(state):
        hint = "run `gpuctl eks destroy` until nothing is left, then make it again"
        wrong = f"its removal has begun ({one} is {one.state})"
        raise InvalidInput(f"make {state.cluster}", wrong, hint)


def create(aws: Aws, design: Design, waiter: Waiter) -> list[Finding]:
    """Make what is missing of a cluster, and judge what was made. Raises at the first step that AWS refuses."""
    state = states.read(aws, design.cluster.name)
    refuse_removal(state)
    if extra := state.duplicates():
        wrong = f"AWS has more than one of a part: {named(map(str, extra))}"
        raise GpuctlError(f"make {design.cluster.name}", wrong, "two runs may have met: destroy it, and make it again")
    maker = Maker(aws, design, state, waiter)
    before, after = node_template.addons(design.cluster)
    roles(maker)
    subnets, nodes = homes(maker)
    efa = efa_group(maker)
    own = control_plane(maker, subnets)
    access(maker)
    findings = addons(maker, before)
    findings += node_groups(maker, nodes, [one for one in (own, efa) if one])
    findings += addons(maker, after)
    return [*findings, *twice(states.read(aws, design.cluster.name))]


def twice(state: State) -> list[Finding]:
    """A failure for each object beyond the first of its part, as of two runs at once."""
    hint = "two runs may have met: `gpuctl eks destroy` removes both; then make it again"
    message = "AWS has more than one of this part, and it may cost"
    return [fail("duplicate", str(one), message, hint) for one in state.duplicates()]
