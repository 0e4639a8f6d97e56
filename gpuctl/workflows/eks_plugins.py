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
    findings, chosen, restarting = list[Finding](), dict[str, Sequence[Any]](), list[Any]()
    listed = cluster.find_everywhere(cluster.kind("apps/v1", "DaemonSet"), "")
    ground = Ground(groups, region, listed, _nodes(cluster, groups))
    for plugin in PLUGINS:
        if any(plugin.resource in one.needs for one in groups):
            try:
                applied = _apply(cluster, plugin, ground, waiter)
            except GpuctlError as error:
                applied = Applied([unknown_because(PLUGIN, plugin.title, error)], _live(plugin, ground))
            findings += applied.findings
            chosen[plugin.resource] = applied.daemon_sets
            restarting += [applied.restarting] * (applied.restarting is not None)
    judged = [one for one in groups if one.active]
    return [*findings, *_awaited(cluster, judged, chosen, restarting, waiter)]


def _awaited(
    cluster: Cluster,
    groups: Sequence[GroupNodes],
    chosen: Mapping[str, Sequence[Any]],
    restarting: Sequence[Any],
    waiter: Waiter,
) -> list[Finding]:
    """Wait for the resources of these groups, and judge them; a Kubernetes that does not answer is asked again.

    `restarting`: DaemonSets with a new template; pods of the old one may still offer the devices.
    """
    late: list[str] = []
    observed: Observation | GpuctlError = Observation({one.group: () for one in groups}, chosen, {})

    def poll() -> tuple[bool | None, str]:
        nonlocal observed, late
        try:
            observed = observe(cluster, groups, chosen)
            late = _late(cluster, restarting)
        except Unreachable as error:
            observed = error
            return None, f"not known: {error}"
        _print_causes(groups, observed, waiter)
        state = node_resources.progress([one for one in groups if one.awaited], observed.nodes)
        state = "; ".join(filter(None, [state, *late]))
        return (None, state) if state else (True, "")

    try:
        waiter.until(OFFERED, poll)
    except TimeUp as error:
        waiter.progress(f"{error.doing}: given up, {error.wrong}")
    except GpuctlError as error:
        observed = error
    if isinstance(observed, GpuctlError):
        return [_not_known(one.group, observed) for one in groups]
    hint = "`kubectl rollout status -n kube-system daemonset/NAME` shows it; then run `gpuctl eks resume`"
    findings = [warn(PLUGIN, "restart", f"{one}: others still run the one before", hint) for one in late]
    return [*findings, *(node_resources.judge(one, observed) for one in groups)]


def _late(cluster: Cluster, restarting: Sequence[Any]) -> list[str]:
    """States of DaemonSets whose pods do not all run the new template."""
    if not restarting:
        return []
    uids = {one["metadata"]["uid"] for one in restarting}
    listed = cluster.find_everywhere_by(cluster.kind("apps/v1", "DaemonSet"), device_plugins.LABELS)
    states = [node_resources.rollout(one) for one in listed if one["metadata"]["uid"] in uids]
    return [one for one in states if one]


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


@dataclass(frozen=True)
class Applied:
    """A plugin after this run. `daemon_sets`: those that run it, none where the image brings it.

    `restarting`: gpuctl's DaemonSet, if its pods restart with a new template.
    """

    findings: Sequence[Finding]
    daemon_sets: Sequence[Any]
    restarting: Any = None


def _apply(cluster: Cluster, plugin: Plugin, ground: Ground, waiter: Waiter) -> Applied:
    """Apply a plugin for the groups that no DaemonSet of others serves; those of others are left alone."""
    subject, live = plugin.title, _live(plugin, ground)
    ours = next((one for one in live if device_plugins.is_ours(plugin, one)), None)
    served = device_plugins.selected_groups(ours)
    free, findings = _shared_out(plugin, ground, served)
    needing = [one for one in free if one.group in served or not _offer_already(plugin, ground.nodes[one.group])]
    if not needing:
        message = "no further group needs it" if live else "the image of the nodes brings it: none is installed"
        return Applied(findings or [ok(PLUGIN, subject, message)], live)
    desired = device_plugins.daemon_set(plugin, needing, ground.region, ours)
    try:
        if ours is not None and _changes(cluster, desired, ours):
            groups = named(sorted(served))
            waiter.progress(f"{device_plugins.title(ours)} changes: its pods restart on the nodes of {groups}")
        applied = cluster.apply(desired)
    except Conflict as error:
        hint = "`kubectl get daemonset -n kube-system -o yaml --show-managed-fields` names who changed it"
        message = f"gpuctl's DaemonSet was changed by others: {error.wrong}"
        return Applied([warn(PLUGIN, subject, message, hint), *findings], live)
    restarting = applied if ours is not None and _is_restarting(applied) else None
    others = [one for one in live if one is not ours]
    return Applied(
        [ok(PLUGIN, subject, f"{device_plugins.title(applied)} is applied"), *findings], [applied, *others], restarting
    )


def _changes(cluster: Cluster, desired: Any, live: Any) -> bool:
    """True if Kubernetes would change the DaemonSet: a dry run gives it another generation."""
    after = cluster.apply(desired, dry_run=True)
    return bool(after["metadata"].get("generation") != live["metadata"].get("generation"))


def _is_restarting(applied: Any) -> bool:
    """True while pods have an older template; a pod that is not ready on a dead node does not count."""
    status = applied.get("status") or {}
    is_new = (status.get("observedGeneration") or 0) < (applied["metadata"].get("generation") or 0)
    return is_new or (status.get("updatedNumberScheduled") or 0) < (status.get("desiredNumberScheduled") or 0)


def _shared_out(plugin: Plugin, ground: Ground, served: Collection[str]) -> tuple[list[GroupNodes], list[Finding]]:
    """Groups that DaemonSets of others leave to gpuctl's, and findings on the others. `served`: by gpuctl's."""
    others = device_plugins.of_others(plugin, ground.daemon_sets)
    free, findings = list[GroupNodes](), list[Finding]()
    doubles, alone, unsure = dict[str, Any](), dict[str, Any](), dict[str, list[str]]()
    for group in device_plugins.targets(plugin, ground.groups):
        nodes = ground.nodes[group.group]
        selecting = [one for one in others if any(node_resources.selects(one, node) for node in nodes)]
        if group.group in served:
            doubles |= {device_plugins.title(one): one for one in selecting}
            free += [] if selecting else [group]
            continue
        sure = [one for one in (selecting if nodes else others) if _is_sure(one, nodes)]
        perhaps = [
            one for one in others if not nodes or _may_select(one, nodes) or device_plugins.has_name(plugin, one)
        ]
        alone |= {device_plugins.title(one): one for one in sure}
        if perhaps and not sure:
            unsure.setdefault(named(map(device_plugins.title, perhaps)), []).append(group.group)
        free += [] if perhaps else [group]
    if alone:
        findings.append(ok(PLUGIN, plugin.title, f"{named(alone)} exists already, and is left alone"))
    findings += [_not_sure(plugin, titles, groups, ground) for titles, groups in unsure.items()]
    if doubles:
        message = f"{named(doubles)} runs beside gpuctl's: two plugins offer the same devices"
        meta = next(iter(doubles.values()))["metadata"]
        hint = f"have its owner exclude these nodes: DaemonSet {meta['name']} in {meta['namespace']}"
        findings.append(warn(PLUGIN, plugin.title, message, hint))
    return free, findings


def _is_sure(daemon_set: Any, nodes: Sequence[Any]) -> bool:
    return node_resources.is_sure(daemon_set) if nodes else node_resources.takes_all(daemon_set)


def _may_select(daemon_set: Any, nodes: Sequence[Any]) -> bool:
    """True if a DaemonSet selects a node, or will once a feature discovery has set its labels."""
    return any(node_resources.selects(daemon_set, one, later=True) for one in nodes)


def _not_sure(plugin: Plugin, titles: str, groups: Sequence[str], ground: Ground) -> Finding:
    message = f"{titles} is left alone; whether it serves {named(groups)} is not known"
    if any(ground.nodes[one] for one in groups):
        hint = "does it run on these nodes? `kubectl get pods -A -o wide`; else have its owner select them by a label"
    else:
        message += ": no node has joined"
        hint = "`gpuctl eks resume` judges it again once nodes run"
    return warn(PLUGIN, plugin.title, message, hint)


def _offer_already(plugin: Plugin, nodes: Sequence[Any]) -> bool:
    """True if something other than a DaemonSet offers the resource on a node, such as a plugin inside a custom image.

    By capacity: a plugin that withholds all devices of a node as faulty is one, too.
    """
    return any(node_resources.count(one, plugin.resource, "capacity") for one in nodes)


def observe(cluster: Cluster, groups: Sequence[GroupNodes], plugins: Mapping[str, Sequence[Any]]) -> Observation:
    """Read the nodes of the groups, and the pods of plugins on nodes that lack something."""
    nodes = _nodes(cluster, groups)
    short = {
        node_resources.name(node)
        for group in groups
        for node in nodes[group.group]
        if node_resources.lacking(group.needs, node)
    }
    try:
        return Observation(nodes, plugins, _pods(cluster, plugins, short) if short else {})
    except Unreachable:
        raise
    except GpuctlError as error:  # what the nodes offer is known without
        return Observation(nodes, plugins, {}, error)


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
