"""Device plugins of an EKS cluster: apply them, and wait until its nodes offer their GPUs and EFA interfaces."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.cluster.deploy import pod_progress
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, ok, unknown, unknown_because, warn
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
from gpuctl.eks.node_template import EFFECTS, PLAIN
from gpuctl.eks.objects import Kind, Object, State
from gpuctl.eks.wait import TimeUp, Wait, Waiter
from gpuctl.workflows import eks_access
from gpuctl.workflows.eks_access import AccessRequest
from gpuctl.workflows.eks_plan import EksPlan
from gpuctl.workflows.eks_pod import progress_of

PATIENCE_S = 20.0
OFFERED = Wait("GPUs of the nodes in Kubernetes", "1 to 3 min: images of the device plugins are pulled", 15 * 60)
MOST_EXPLAINED = 3  # pods whose events are read in a look: the causes of many are the same
PLUGIN = "device-plugin"
NOT_MADE = ("CREATE_FAILED", "DELETING")  # states of a group without nodes to serve


def check(aws: Aws, made: EksPlan, planned: Design, waiter: Waiter) -> list[Finding]:
    """Apply device plugins and wait for what they offer; UNKNOWN with a command if Kubernetes does not answer."""
    cluster = made.cluster
    existing = states.in_cluster(aws, State(cluster.name, cluster.region), [Kind.GROUP])
    groups = [one for one in groups_of(made, planned, existing) if one.needs]
    if not groups or not any(one.state not in NOT_MADE for one in existing):
        return []  # no group was made: the findings on groups name the cause
    try:
        api = connect(cluster, aws)
        return ensure(api, groups, aws.region, waiter)
    except GpuctlError as error:
        return [_not_known(cluster.name, error, f"`gpuctl eks resume {cluster.name}`")]


def _not_known(subject: str, error: GpuctlError, resume: str = "`gpuctl eks resume`") -> Finding:
    message = f"whether the nodes offer their GPUs is not known: {error}"
    reach = error.hint or "the API may be reachable only from inside the VPC, or this login has no access entry"
    return unknown(node_resources.CHECK, subject, message, f"{reach}; then {resume} checks it again")


def connect(cluster: EksCluster, aws: Aws) -> Cluster:
    """Kubernetes of the cluster, through a kubeconfig of gpuctl."""
    request = AccessRequest(cluster.name, "gpu", "", device_plugins.NAMESPACE, aws.region, aws.profile)
    place = eks_access.place(request)
    return kube.connect(place.context, place.namespace, place.files, PATIENCE_S)


def groups_of(made: EksPlan, planned: Design, existing: Sequence[Object]) -> list[GroupNodes]:
    """Nodes of the groups of the file, and of gpuctl's groups that AWS has beside them, as after a change of a name.

    `existing`: groups of AWS. The desired number is AWS's, as autoscalers and people change it. A group that is not in
    the file is served by the plugin of NVIDIA, and by that of EFA if it serves it already.
    """
    listed = {one.name: one for one in existing if one.ours and one.state != "DELETING"}
    groups = []
    for group in made.cluster.node_groups:
        live = listed.pop(group.name, None)
        kind = made.facts.types[group.instance_type]
        efas = sum(one.kind != PLAIN for one in planned.networks[group.name].nics)
        gpus = None if isinstance(kind, GpuctlError) else kind.gpus
        taints = tuple(dict.fromkeys((*group.taints, *_taints(live))))
        is_active = live is not None and live.state == "ACTIVE"
        desired = _desired(live) if live is not None else group.desired
        one = GroupNodes(group.name, group.instance_type, group.ami, desired, gpus, efas, taints, is_active)
        groups.append(one)
    for live in listed.values():
        ami = str(live.data.get("amiType") or "")
        gpus = None if "NVIDIA" in ami else 0
        groups.append(GroupNodes(live.name, "", ami, _desired(live), gpus, 0, _taints(live), active=False))
    return groups


def _desired(group: Object) -> int:
    return int((group.data.get("scalingConfig") or {}).get("desiredSize") or 0)


def _taints(group: Object | None) -> tuple[str, ...]:
    """Taints of a group of AWS in Kubernetes' form."""
    rows = (group.data.get("taints") if group is not None else None) or ()
    effects = {theirs: ours for ours, theirs in EFFECTS.items()}
    several = []
    for one in rows:
        value = f"={one['value']}" if one.get("value") else ""
        several.append(f"{one.get('key')}{value}:{effects.get(str(one.get('effect')), '')}")
    return tuple(several)


def ensure(cluster: Cluster, groups: Sequence[GroupNodes], region: str, waiter: Waiter) -> list[Finding]:
    """Apply the plugins that are missing, and wait for the resources of all nodes. Each step can be repeated."""
    findings, chosen = list[Finding](), dict[str, list[Any]]()
    listed = cluster.find_everywhere(cluster.kind("apps/v1", "DaemonSet"), "")
    ground = Ground(groups, region, listed, _nodes(cluster, groups))
    for plugin in PLUGINS:
        if any(plugin.resource in one.needs for one in groups):
            try:
                found, chosen[plugin.resource] = _apply(cluster, plugin, ground)
            except GpuctlError as error:
                found, chosen[plugin.resource] = [unknown_because(PLUGIN, plugin.title, error)], _live(plugin, ground)
            findings += found
    judged = [one for one in groups if one.active]
    return [*findings, *_awaited(cluster, judged, chosen, waiter)]


def _awaited(
    cluster: Cluster, groups: Sequence[GroupNodes], chosen: Mapping[str, Sequence[Any]], waiter: Waiter
) -> list[Finding]:
    """Wait for the resources of these groups, and judge them; a Kubernetes that does not answer is asked again."""
    observed: Observation | GpuctlError = Observation({one.group: () for one in groups}, chosen, {})

    def poll() -> tuple[bool | None, str]:
        nonlocal observed
        try:
            observed = observe(cluster, groups, chosen)
        except Unreachable as error:
            observed = error
            return None, f"not known: {error}"
        _print_causes(groups, observed, waiter)
        state = node_resources.progress([one for one in groups if one.awaited], observed.nodes)
        return (None, state) if state else (True, "")

    try:
        waiter.until(OFFERED, poll)
    except TimeUp as error:
        waiter.progress(f"{error.doing}: given up, {error.wrong}")
    except GpuctlError as error:
        observed = error
    if isinstance(observed, GpuctlError):
        return [_not_known(one.group, observed) for one in groups]
    return [node_resources.judge(one, observed) for one in groups]


def _print_causes(groups: Sequence[GroupNodes], observed: Observation, waiter: Waiter) -> None:
    """Print causes that do not pass by themselves, each once."""
    for group in groups:
        short = [one for one in observed.nodes[group.group] if node_resources.lacking(group.needs, one)]
        for cause in node_resources.causes(group, short, observed):
            if not cause.passes:
                waiter.once(f"node group {group.group}: {cause.text}; {cause.hint}")


@dataclass(frozen=True)
class Ground:
    """State before plugins are applied. `daemon_sets`: of all namespaces; `nodes`: by group."""

    groups: Sequence[GroupNodes]
    region: str
    daemon_sets: Sequence[Any]
    nodes: Mapping[str, Sequence[Any]]


def _live(plugin: Plugin, ground: Ground) -> list[Any]:
    """DaemonSets that run the plugin already: gpuctl's first."""
    ours = [one for one in ground.daemon_sets if device_plugins.is_ours(plugin, one)]
    return [*ours, *device_plugins.of_others(plugin, ground.daemon_sets)]


def _apply(cluster: Cluster, plugin: Plugin, ground: Ground) -> tuple[list[Finding], list[Any]]:
    """Apply a plugin; findings, and its DaemonSets (none where the image brings it). One of others is left alone."""
    subject = plugin.title
    ours = next((one for one in ground.daemon_sets if device_plugins.is_ours(plugin, one)), None)
    others = device_plugins.of_others(plugin, ground.daemon_sets)
    needing = device_plugins.targets(plugin, ground.groups)
    nodes = [node for one in needing for node in ground.nodes[one.group]]
    here = [one for one in others if any(node_resources.selects(one, node) for node in nodes)]
    if others and ours is None:
        names = named(map(device_plugins.title, here or others))
        return [ok(PLUGIN, subject, f"{names} exists already, and is left alone")], others
    if here:
        message = f"{named(map(device_plugins.title, here))} runs beside gpuctl's: two plugins offer the same devices"
        meta = here[0]["metadata"]
        hint = (
            f"remove that one, or have its owner exclude these nodes: DaemonSet {meta['name']} in {meta['namespace']}"
        )
        return [warn(PLUGIN, subject, message, hint)], _live(plugin, ground)
    served = device_plugins.selected_groups(ours)
    needing = [one for one in needing if one.group in served or not _offer_already(plugin, ground.nodes[one.group])]
    if not needing:
        message = "the image of the nodes brings it: none is installed" if ours is None else "no further group needs it"
        return [ok(PLUGIN, subject, message)], _live(plugin, ground)
    desired = device_plugins.daemon_set(plugin, needing, ground.region, ours)
    try:
        applied = cluster.apply(desired)
    except Conflict as error:
        hint = "`kubectl get daemonset -n kube-system -o yaml --show-managed-fields` names who changed it"
        message = f"gpuctl's DaemonSet was changed by others: {error.wrong}"
        return [warn(PLUGIN, subject, message, hint)], _live(plugin, ground)
    return [ok(PLUGIN, subject, f"{device_plugins.title(applied)} is applied")], [applied, *others]


def _offer_already(plugin: Plugin, nodes: Sequence[Any]) -> bool:
    """True if something other than a DaemonSet offers the resource, such as a plugin inside a custom image."""
    return bool(nodes) and all(node_resources.count(one, plugin.resource) for one in nodes)


def observe(cluster: Cluster, groups: Sequence[GroupNodes], plugins: Mapping[str, Sequence[Any]]) -> Observation:
    """Read the nodes of the groups, and the pods of plugins on nodes that lack something."""
    nodes = _nodes(cluster, groups)
    short = {
        node_resources.name(node)
        for group in groups
        for node in nodes[group.group]
        if node_resources.lacking(group.needs, node)
    }
    return Observation(nodes, plugins, _pods(cluster, plugins, short) if short else {})


def _nodes(cluster: Cluster, groups: Sequence[GroupNodes]) -> dict[str, list[Any]]:
    kind = cluster.kind("v1", "Node")
    return {one.group: cluster.find(kind, {GROUP_LABEL: one.group}) for one in groups}


def _pods(cluster: Cluster, plugins: Mapping[str, Sequence[Any]], nodes: Collection[str]) -> dict[str, list[PluginPod]]:
    """Pods of the plugins on these nodes, by node. The first that are not ready have the reasons of their events."""
    pods: dict[str, list[PluginPod]] = {}
    explained = 0
    for daemon_set in (one for several in plugins.values() for one in several):
        labels = (daemon_set["spec"].get("selector") or {}).get("matchLabels") or {}
        for one in cluster.find_everywhere_by(cluster.kind("v1", "Pod"), labels):
            owners = [owner.get("uid") for owner in one["metadata"].get("ownerReferences") or ()]
            node = device_plugins.node_of(one)
            if daemon_set["metadata"]["uid"] not in owners or node not in nodes:
                continue
            state = pod_progress.state(one)
            if not state.ready and explained < MOST_EXPLAINED:
                state, explained = progress_of(cluster, one), explained + 1
            pods.setdefault(node, []).append(PluginPod(one, state.summary, state.trouble, state.ready))
    return pods
