"""Device plugins of an EKS cluster: apply them, and wait until its nodes offer their GPUs and EFA interfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, ok, unknown, warn
from gpuctl.domain.kube_errors import Conflict
from gpuctl.edges.aws import Aws
from gpuctl.edges.kube import cluster as kube
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.eks import device_plugins, node_resources
from gpuctl.eks import state as states
from gpuctl.eks.device_plugins import GROUP_LABEL, PLUGINS, GroupNodes, Plugin
from gpuctl.eks.maker import Design
from gpuctl.eks.model import EksCluster
from gpuctl.eks.node_resources import Observation, PluginPod
from gpuctl.eks.node_template import PLAIN
from gpuctl.eks.objects import Kind, Object
from gpuctl.eks.wait import TimeUp, Wait, Waiter
from gpuctl.workflows import eks_access
from gpuctl.workflows.eks_access import AccessRequest
from gpuctl.workflows.eks_plan import EksPlan
from gpuctl.workflows.eks_pod import progress_of

PATIENCE_S = 20.0
OFFERED = Wait("GPUs of the nodes in Kubernetes", "1 to 3 min: images of the device plugins are pulled", 15 * 60)
MOST_EXAMINED = 3  # nodes whose pods are read in a look: the causes of many are the same
PLUGIN = "device-plugin"


def check(aws: Aws, made: EksPlan, planned: Design, waiter: Waiter) -> list[Finding]:
    """Apply device plugins and wait for what they offer; UNKNOWN with a command if Kubernetes does not answer."""
    cluster = made.cluster
    if not any(one.needs for one in groups_of(made, planned, None)):
        return []
    existing = states.in_cluster(aws, states.read(aws, cluster.name), [Kind.GROUP])
    groups = [one for one in groups_of(made, planned, existing) if one.needs]
    if not groups:
        return []  # no group with GPUs is ACTIVE: the findings on groups name the cause
    try:
        api = connect(cluster, aws)
        return ensure(api, groups, aws.region, waiter)
    except GpuctlError as error:
        message = f"whether the nodes offer their GPUs is not known: {error}"
        reach = error.hint or "the API may be reachable only from inside the VPC, or this login has no access entry"
        hint = f"{reach}; then `gpuctl eks resume {cluster.name}` checks it again"
        return [unknown(node_resources.CHECK, cluster.name, message, hint)]


def connect(cluster: EksCluster, aws: Aws) -> Cluster:
    """Kubernetes of the cluster, through a kubeconfig of gpuctl."""
    request = AccessRequest(cluster.name, "gpu", "", device_plugins.NAMESPACE, aws.region, aws.profile)
    place = eks_access.place(request)
    return kube.connect(place.context, place.namespace, place.files, PATIENCE_S)


def groups_of(made: EksPlan, planned: Design, existing: Sequence[Object] | None) -> list[GroupNodes]:
    """Nodes of the groups of the file. `existing`: groups of AWS, of which the ACTIVE ones count; None for all groups.

    The desired number is that of AWS, as autoscalers and people change it.
    """
    active = {one.name: one for one in existing or () if one.state == "ACTIVE"}
    groups = []
    for group in made.cluster.node_groups:
        if existing is not None and group.name not in active:
            continue
        desired = group.desired
        if group.name in active:
            desired = int((active[group.name].data.get("scalingConfig") or {}).get("desiredSize") or 0)
        kind = made.facts.types[group.instance_type]
        efas = sum(one.kind != PLAIN for one in planned.networks[group.name].nics)
        gpus = None if isinstance(kind, GpuctlError) else kind.gpus
        groups.append(GroupNodes(group.name, group.instance_type, group.ami, desired, gpus, efas, tuple(group.taints)))
    return groups


def ensure(cluster: Cluster, groups: Sequence[GroupNodes], region: str, waiter: Waiter) -> list[Finding]:
    """Apply the plugins that are missing, and wait for the resources of all nodes. Each step can be repeated."""
    findings, chosen = list[Finding](), dict[str, Object | None]()
    listed = cluster.find_everywhere(cluster.kind("apps/v1", "DaemonSet"), "")
    ground = Ground(groups, region, listed, _nodes(cluster, groups))
    for plugin in PLUGINS:
        if any(plugin.resource in one.needs for one in groups):
            found, chosen[plugin.resource] = _apply(cluster, plugin, ground)
            findings += found

    observed = Observation({}, {}, {})

    def poll() -> tuple[bool | None, str]:
        nonlocal observed
        observed = observe(cluster, groups, chosen)
        for group in groups:
            short = [one for one in observed.nodes[group.group] if node_resources.lacking(group, one)]
            for cause in node_resources.causes(group, short, observed):
                if not cause.passes:
                    waiter.once(f"node group {group.group}: {cause.text}; {cause.hint}")
        awaited = [one for one in groups if one.has_driver]  # without a driver nothing comes
        state = node_resources.progress(awaited, observed.nodes)
        return (None, state) if state else (True, "")

    try:
        waiter.until(OFFERED, poll)
    except TimeUp as error:
        waiter.progress(f"{error.doing}: given up, {error.wrong}")
    return [*findings, *(node_resources.judge(one, observed) for one in groups)]


@dataclass(frozen=True)
class Ground:
    """State before plugins are applied. `daemon_sets`: of all namespaces; `nodes`: by group."""

    groups: Sequence[GroupNodes]
    region: str
    daemon_sets: Sequence[Any]
    nodes: Mapping[str, Sequence[Any]]


def _apply(cluster: Cluster, plugin: Plugin, ground: Ground) -> tuple[list[Finding], Any]:
    """Apply a plugin; findings, and its DaemonSet (None where the image brings it). One of others is left alone."""
    subject = plugin.title
    others = device_plugins.of_others(plugin, ground.daemon_sets)
    ours = next((one for one in ground.daemon_sets if device_plugins.is_ours(plugin, one)), None)
    if others:
        names = named(map(device_plugins.title, others))
        if ours is not None:
            message = f"{names} runs beside gpuctl's: two plugins offer the same devices"
            hint = f"remove one: `kubectl delete daemonset -n {device_plugins.NAMESPACE} {plugin.name}`"
            return [warn(PLUGIN, subject, message, hint)], ours
        return [ok(PLUGIN, subject, f"{names} exists already, and is left alone")], others[0]
    needing = device_plugins.targets(plugin, ground.groups)
    if ours is None:
        needing = [one for one in needing if not _offer_already(plugin, ground.nodes[one.group])]
    if not needing:
        return [ok(PLUGIN, subject, "the image of the nodes brings it: none is installed")], None
    desired = device_plugins.daemon_set(plugin, needing, ground.region)
    try:
        applied = cluster.apply(desired)
    except Conflict as error:
        hint = "`kubectl get daemonset -n kube-system -o yaml --show-managed-fields` names who changed it"
        return [warn(PLUGIN, subject, f"gpuctl's DaemonSet was changed by others: {error.wrong}", hint)], ours
    return [ok(PLUGIN, subject, f"{device_plugins.title(applied)} is applied")], applied


def _offer_already(plugin: Plugin, nodes: Sequence[Any]) -> bool:
    """True if something other than a DaemonSet offers the resource, such as a plugin inside a custom image."""
    return bool(nodes) and all(device_plugins.offered(one, plugin.resource) for one in nodes)


def observe(cluster: Cluster, groups: Sequence[GroupNodes], plugins: Mapping[str, Any]) -> Observation:
    """Read the nodes of the groups, and the pods of plugins on nodes that lack something."""
    nodes = _nodes(cluster, groups)
    pods = {}
    for group in groups:
        short = [one for one in nodes[group.group] if node_resources.lacking(group, one)]
        for node in short[:MOST_EXAMINED]:
            pods[node_resources.name(node)] = _pods(cluster, node_resources.name(node), plugins)
    return Observation(nodes, plugins, pods)


def _nodes(cluster: Cluster, groups: Sequence[GroupNodes]) -> dict[str, list[Any]]:
    kind = cluster.kind("v1", "Node")
    return {one.group: cluster.find(kind, {GROUP_LABEL: one.group}) for one in groups}


def _pods(cluster: Cluster, node: str, plugins: Mapping[str, Any]) -> list[PluginPod]:
    """Pods of the plugins on a node."""
    uids = {one["metadata"]["uid"] for one in plugins.values() if one is not None}
    listed = cluster.find_everywhere(cluster.kind("v1", "Pod"), f"spec.nodeName={node}")
    pods = []
    for one in listed:
        if any(owner.get("uid") in uids for owner in one["metadata"].get("ownerReferences") or ()):
            state = progress_of(cluster, one)
            pods.append(PluginPod(one, state.summary, state.trouble, state.ready))
    return pods
