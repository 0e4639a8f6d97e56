"""Make launch templates and node groups, and tell health issues while they start."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Finding, Number, fail, ok, unknown, unknown_because, warn
from gpuctl.edges.aws import Request
from gpuctl.eks import health, network, node_template
from gpuctl.eks.maker import Maker
from gpuctl.eks.model import Capacity, NodeGroup
from gpuctl.eks.network import Home
from gpuctl.eks.node_template import LaunchOptions
from gpuctl.eks.objects import (
    CONTENT,
    Kind,
    Object,
    digest,
    object_name,
    tag_list,
)
from gpuctl.eks.wait import GROUPS_DOWN, GROUPS_UP

GONE = "was made and is gone: EKS does not list it"
GROUP_FAILED = ("CREATE_FAILED", "DELETE_FAILED")
ATTEMPT = "gpuctl:attempt"  # tag of a launch template whose group could not be made


def node_groups(maker: Maker, subnets: Sequence[Home], security_groups: Sequence[str]) -> list[Finding]:
    """Make launch templates and node groups, then wait for all groups together."""
    findings = []
    for group in maker.cluster.node_groups:
        remove_failed(maker, group)
        findings += node_group(maker, group, subnets, security_groups, placement_group(maker, group))

    def tell(one: Object) -> None:
        for issue in health.issues(one.data):
            action = health.hint(issue)
            maker.waiter.once(f"node group {one.name}: {issue}" + (f"; {action}" if action else ""))

    settled = maker.settled(Kind.GROUP, [group.name for group in maker.cluster.node_groups], GROUPS_UP, tell)
    return [*findings, *(judged_group(maker, name, one) for name, one in settled.items())]


def placement_group(maker: Maker, group: NodeGroup) -> str:
    name = node_template.placement_group(group, object_name(maker.cluster.name, group.name))
    if group.placement == "cluster":
        parameters: dict[str, Any] = {"GroupName": name, "Strategy": "cluster"}
        return maker.ec2(
            *(Kind.PLACEMENT, group.name, "CreatePlacementGroup", "PlacementGroup", "placement-group"),
            **parameters,
        ).name
    return name


def node_group(
    maker: Maker, group: NodeGroup, subnets: Sequence[Home], security_groups: Sequence[str], placement: str
) -> list[Finding]:
    """Launch template and node group of one group. A group that exists is compared, and not changed."""
    made_from = maker.design.networks[group.name]
    prefixes = "ENABLE_PREFIX_DELEGATION=true" in maker.cluster.cni
    most_pods = node_template.max_pods(group, made_from, prefixes)
    if most_pods is not None:
        look = (
            "`kubectl get node -o custom-columns=NAME:.metadata.name,PODS:.status.allocatable.pods` shows what counts"
        )
        maker.waiter.once(f"node group {group.name}: {most_pods} pods a node are asked for; {look}")
    data = node_template.launch_template(
        group,
        made_from,
        LaunchOptions(security_groups, placement, most_pods),
        maker.tags(group.name),
    )
    existing = maker.state.get(Kind.GROUP, group.name)
    content = digest(data)
    if existing is not None:
        maker.checked(existing)
        made = maker.state.get(Kind.TEMPLATE, group.name)
        if made is not None and made.tags.get(CONTENT) != content:
            message = "it was made from other values than the file has now; it stays as it is"
            hint = "make a group of another name, or destroy the cluster and make it again"
            return [warn("node-group", group.name, message, hint)]
        return []
    template = launch_template(maker, group, data, content)
    strategy = maker.design.strategies.get(group.placement, "")
    usable = network.homes(group, made_from.has_efa, maker.design.needed_zones[group.name], subnets, strategy)
    if not usable:
        where = ", ".join(sorted(maker.design.needed_zones[group.name])) or "no zone"
        wrong = f"its instances are in {where}, and no subnet lies there"
        raise GpuctlError(f"make the node group {group.name}", wrong, "add a subnet: `gpuctl subnets add`")
    role = maker.needed(Kind.ROLE, "node")
    version = {"id": template.name, "version": str(template.data.get("DefaultVersionNumber") or 1)}
    arn = str(role.data["Arn"])
    parameters = node_template.node_group(maker.cluster, group, arn, [one.name for one in usable], version)

    def request() -> Request:
        plain = {**parameters, "tags": maker.tags(group.name)}
        plain["clientRequestToken"] = maker.token(
            f"group {group.name}", [parameters, content, template.tags.get(ATTEMPT)]
        )
        return Request(f"make the node group {group.name}", "eks", "CreateNodegroup", "", plain)

    maker.once_role_is_known(lambda: maker.ensure(Kind.GROUP, group.name, request, "nodegroup"))
    return []


def remove_failed(maker: Maker, group: NodeGroup) -> None:
    """Remove a group that AWS could not make: EKS cannot repair one, and it is made again."""
    found = maker.state.get(Kind.GROUP, group.name)
    if found is None or found.state not in (*GROUP_FAILED, "DELETING") or not found.ours:
        return
    why = "; ".join(map(str, health.issues(found.data))) or "AWS names no reason"
    maker.waiter.progress(f"node group {group.name} is {found.state} ({why}): removing it, to make it again")
    parameters = {"clusterName": maker.cluster.name, "nodegroupName": group.name}
    made_template = maker.state.get(Kind.TEMPLATE, group.name)
    if found.state != "DELETING":
        if made_template is not None:  # so that the next group has another token
            attempt = {ATTEMPT: str(time.time_ns())}
            tagging = {"Resources": [made_template.name], "Tags": tag_list(attempt)}
            maker.act(f"mark the launch template of {group.name}", "ec2", "CreateTags", tagging)
            maker.state.add(replace(made_template, tags={**made_template.tags, **attempt}))
        maker.act(f"remove the failed node group {group.name}", "eks", "DeleteNodegroup", parameters)

    maker.removed(Kind.GROUP, group.name, GROUPS_DOWN, f"remove the failed node group {group.name}")


def launch_template(maker: Maker, group: NodeGroup, data: Mapping[str, Any], content: str) -> Object:
    """The launch template with this content; another version of one that has other content."""

    def request() -> Request:
        tagged = [{"ResourceType": "launch-template", "Tags": tag_list(maker.tags(group.name, {CONTENT: content}))}]
        parameters = {
            "LaunchTemplateName": object_name(maker.cluster.name, group.name),
            "LaunchTemplateData": data,
            "TagSpecifications": tagged,
            "ClientToken": maker.token(f"template {group.name}", content),
        }
        return Request(f"make the launch template of {group.name}", "ec2", "CreateLaunchTemplate", "", parameters)

    known = maker.state.get(Kind.TEMPLATE, group.name) is not None
    found = maker.ensure(Kind.TEMPLATE, group.name, request, "LaunchTemplate")
    if not known or found.tags.get(CONTENT) == content:
        return found
    doing = f"change the launch template of {group.name}"
    named_ = {"LaunchTemplateId": found.name}
    version = maker.act(
        *(doing, "ec2", "CreateLaunchTemplateVersion"),
        {**named_, "LaunchTemplateData": data, "ClientToken": maker.token(f"version {group.name}", content)},
    )["LaunchTemplateVersion"]["VersionNumber"]
    maker.act(doing, "ec2", "ModifyLaunchTemplate", {**named_, "DefaultVersion": str(version)})
    tagging = {"Resources": [found.name], "Tags": [{"Key": CONTENT, "Value": content}]}
    maker.act(doing, "ec2", "CreateTags", tagging)
    changed = replace(
        found,
        tags={**found.tags, CONTENT: content},
        data={**found.data, "DefaultVersionNumber": version},
    )
    maker.state.add(changed)
    return changed


def judged_group(maker: Maker, name: str, group: Object | None) -> Finding:
    """Finding on a group; None for one that AWS does not list."""
    if group is None:
        return fail("node-group", name, GONE, "see who removed it, then run `gpuctl eks resume`")
    found = health.issues(group.data)
    text = "; ".join(map(str, found))
    hint = next((action for action in map(health.hint, found) if action), "")
    if group.state == "ACTIVE" and not found:
        size = group.data.get("scalingConfig", {}).get("desiredSize")
        if any(one.name == name and one.capacity is Capacity.BLOCK for one in maker.cluster.node_groups):
            return judged_block(maker, name, int(size or 0))
        return ok("node-group", group.name, f"ACTIVE, {size} nodes desired")
    if group.state == "ACTIVE":
        return warn("node-group", group.name, f"ACTIVE, with issues: {text}", hint)
    again = hint or "remove the cause, then run `gpuctl eks resume`, which makes it again"
    return fail("node-group", group.name, f"{group.state}: {text or 'AWS names no reason'}", again)


def judged_block(maker: Maker, name: str, desired: int) -> Finding:
    """Finding on an ACTIVE group on a capacity block: EKS calls it ACTIVE without looking whether its nodes joined."""
    filters = [
        {"Name": "tag:eks:cluster-name", "Values": [maker.cluster.name]},
        {"Name": "tag:eks:nodegroup-name", "Values": [name]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    request = Request(f"count the nodes of {name}", "ec2", "DescribeInstances", "Reservations", {"Filters": filters})
    try:
        running = sum(maker.aws.read(request, lambda answer: len(answer["Instances"])))
    except GpuctlError as error:
        return unknown_because("node-group", name, error)
    numbers: dict[str, Number] = {"running_nodes": running, "desired_nodes": desired}
    if running < desired:
        message = f"ACTIVE, and {running} of {desired} desired instances run"
        return warn("node-group", name, message, "`gpuctl eks status` counts them again", **numbers)
    if not desired:
        return ok("node-group", name, "ACTIVE, 0 nodes desired")
    message = f"ACTIVE, {running} instances run; for a block EKS does not check that they joined"
    return unknown("node-group", name, message, "`kubectl get node`", **numbers)
