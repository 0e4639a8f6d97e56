"""Judge the GPUs and EFA interfaces that nodes offer to pods, with the cause where some are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.core.errors import GpuctlError
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Number, Verdict, fail, warn
from gpuctl.domain.kube_nodes import GPU, MIG, READY, SHARED, gpus, reason
from gpuctl.eks.device_plugins import EFA, PLUGINS, GroupNodes, Plugin, is_gpuctls, title

Object = dict[str, Any]
CHECK = "gpu-resources"
AGAIN = "then run `gpuctl eks resume`"
NO_POD = "has no pod on it yet"
TITLES = {GPU: "GPU", EFA: "EFA interface"}
# Taints that the controller of DaemonSets has every pod of one tolerate. Source: Kubernetes documentation, DaemonSet.
TOLERATED = ("node.kubernetes.io/",)
# Last parts of keys of taints that a controller removes once a node has started: CSI drivers of EBS and EFS, Cilium,
# the cloud's controller, Karpenter.
DISCOVERED = ("feature.node.kubernetes.io/", "nvidia.com/")  # labels of NFD and of NVIDIA's feature discovery
STARTUP = ("agent-not-ready", "uninitialized", "unregistered", "not-ready")


@dataclass(frozen=True)
class Cause:
    """Cause of a missing resource. `hint`: what to try. `passes`: it usually ends by itself, as while a node starts."""

    text: str
    hint: str = ""
    passes: bool = False


@dataclass(frozen=True)
class PluginPod:
    """A pod of a plugin. `summary`: its phase in words; `trouble`: what stops it from being ready, "" for nothing."""

    pod: Object
    summary: str
    trouble: str = ""
    ready: bool = False


@dataclass(frozen=True)
class Observation:
    """Objects of Kubernetes. `nodes`: by group. `plugins`: DaemonSets of a resource, none if the image brings it.

    `pods`: node -> pods of plugins on it; only of nodes that lack a resource. `pods_unread`: why they are not known.
    """

    nodes: Mapping[str, Sequence[Object]]
    plugins: Mapping[str, Sequence[Object]]
    pods: Mapping[str, Sequence[PluginPod]]
    pods_unread: GpuctlError | None = None


@dataclass(frozen=True)
class Shortage:
    """A resource of which a node offers too few: `offered` of `expected`; `capacity`: what plugins registered."""

    offered: int
    expected: int
    capacity: int


def name(node: Object) -> str:
    return str(node["metadata"]["name"])


def is_usable(node: Object) -> bool:
    """True if pods can start on it: the API has the resources of a dead node, too."""
    return _ready(node).get("status") == "True" and not node["metadata"].get("deletionTimestamp")


def _ready(node: Object) -> Mapping[str, Any]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == READY), {})


def lacking(needs: Mapping[str, int], node: Object) -> dict[str, Shortage]:
    """Resource -> shortage on a node. All that plugins registered is expected: the rest of it is withheld."""
    shortages = {}
    for resource, number in needs.items():
        capacity, allocatable = count(node, resource, "capacity"), count(node, resource)
        expected = max(number, capacity)
        offered = allocatable if is_usable(node) else 0
        if offered < expected:
            shortages[resource] = Shortage(offered, expected, capacity)
    return shortages


def count(node: Object, resource: str, member: str = "allocatable") -> int:
    """Number of a resource that a node offers to pods, or (`capacity`) has registered; slices of GPUs count as one."""
    resources = (node.get("status") or {}).get(member) or {}
    if resource == GPU:
        return gpus(resources)
    text = str(resources.get(resource, "0"))
    return int(text) if text.isdigit() else 0


def is_sliced(node: Object, number: int) -> bool:
    """True if a node offers time slices or MIG devices, from which the number of its GPUs does not follow."""
    resources = (node.get("status") or {}).get("allocatable") or {}
    return any(key == SHARED or key.startswith(MIG) for key in resources) or gpus(resources) > number


def progress(groups: Sequence[GroupNodes], nodes: Mapping[str, Sequence[Object]]) -> str:
    """State of groups that still lack nodes or resources that will come; "" if none does."""
    parts = []
    for group in groups:
        complete = [one for one in nodes[group.group] if not lacking(group.awaited, one)]
        if len(complete) < group.desired or len(complete) < len(nodes[group.group]):
            most = max(group.desired, len(nodes[group.group]))
            parts.append(f"{len(complete)} of {plural(most, 'node')} of {group.group} offer {_words(group.awaited)}")
    return "; ".join(parts)


def _words(needs: Mapping[str, int]) -> str:
    return " and ".join(plural(number, TITLES[resource]) for resource, number in needs.items())


def judge(group: GroupNodes, observed: Observation) -> Finding:
    """Finding on the nodes of a group."""
    nodes = observed.nodes[group.group]
    short = [one for one in nodes if lacking(group.needs, one)]
    numbers: dict[str, Number] = {"nodes": len(nodes), "desired_nodes": group.desired, "nodes_lacking": len(short)}
    if short:
        several = causes(group, short, observed)
        hint = next((one.hint for one in several if one.hint), f"correct it, {AGAIN}")
        verb = "does" if len(short) == 1 else "do"
        message = f"{len(short)} of {plural(len(nodes), 'node')} {verb} not offer {_words(group.needs)}: "
        return fail(CHECK, group.group, message + named([one.text for one in several], 3), hint, **numbers)
    if len(nodes) < group.desired:
        message = f"{len(nodes)} of {plural(group.desired, 'desired node')} joined Kubernetes"
        hint = f"read the issues of the group: `gpuctl eks status`; {AGAIN}"
        return fail(CHECK, group.group, message, hint, **numbers)
    if not nodes:
        message = "no node is desired now: nothing offers GPUs yet"
        return warn(CHECK, group.group, message, "`gpuctl eks resume` checks them once nodes run", **numbers)
    if group.gpus is None:
        message = f"{plural(len(nodes), 'node')} offer GPUs; their number was not checked: AWS does not tell it"
        return warn(CHECK, group.group, message, "compare with `kubectl describe nodes`", **numbers)
    if sliced := [name(one) for one in nodes if is_sliced(one, group.gpus)]:
        message = f"{named(sliced, 3)}: GPUs are offered as slices (time slices or MIG); their number was not checked"
        return warn(CHECK, group.group, message, "compare with `nvidia-smi -L` on the nodes", **numbers)
    each = " each" if len(nodes) > 1 else ""
    message = f"{plural(len(nodes), 'node')} offer{'s' if len(nodes) == 1 else ''} {_words(group.needs)}{each}"
    return Finding(CHECK, group.group, Verdict.OK, message, numbers)


def causes(group: GroupNodes, nodes: Sequence[Object], observed: Observation) -> list[Cause]:
    """Causes of what these nodes lack, each once with the first node that has it."""
    several: dict[str, Cause] = {}
    for node in nodes:
        for one in _causes(group, node, observed):
            several.setdefault(one.text, replace(one, text=f"{name(node)}: {one.text}"))
    return list(several.values())


def _causes(group: GroupNodes, node: Object, observed: Observation) -> Iterator[Cause]:
    if node["metadata"].get("deletionTimestamp"):
        yield Cause("it is being removed from Kubernetes", "`kubectl describe node` shows its finalizers", passes=True)
        return
    ready = _ready(node)
    if ready.get("status") != "True":
        text = f"its kubelet is not ready: {reason(ready)}"
        yield Cause(text, "`kubectl describe node` shows its conditions", passes=True)
        return
    for resource, shortage in lacking(group.needs, node).items():
        plugin = next(one for one in PLUGINS if one.resource == resource)
        if shortage.offered:
            yield _withheld(group, node, plugin, shortage)
        else:
            yield _cause(group, node, plugin, observed, shortage)


def _withheld(group: GroupNodes, node: Object, plugin: Plugin, shortage: Shortage) -> Cause:
    is_slices = plugin.resource == GPU and is_sliced(node, group.needs[GPU])
    amount = f"{shortage.expected} slices of GPUs" if is_slices else plural(shortage.expected, TITLES[plugin.resource])
    text = f"it offers {shortage.offered} of {amount}: the others are withheld"
    return Cause(text, "`gpuctl audit` of the node shows faults of its hardware")


def _cause(group: GroupNodes, node: Object, plugin: Plugin, observed: Observation, shortage: Shortage) -> Cause:
    daemon_sets = observed.plugins.get(plugin.resource) or ()
    if not daemon_sets:
        text = f"{plugin.title}, which the image {group.ami} brings, offers none"
        return Cause(text, "read the journal of kubelet on the node")
    uids = {one["metadata"]["uid"] for one in daemon_sets}
    for one in observed.pods.get(name(node), ()):
        if any(owner.get("uid") in uids for owner in one.pod["metadata"].get("ownerReferences") or ()):
            if one.ready and shortage.capacity:
                return _withheld(group, node, plugin, shortage)
            return _of_pod(group, plugin, one)
    cause = _no_pod(node, next((one for one in daemon_sets if selects(one, node)), daemon_sets[0]))
    if observed.pods_unread is not None and cause.text.endswith(NO_POD):
        return Cause(f"its pods of {plugin.title} are not known: {observed.pods_unread}", observed.pods_unread.hint)
    return cause


def _of_pod(group: GroupNodes, plugin: Plugin, state: PluginPod) -> Cause:
    meta = state.pod["metadata"]
    trouble = f": {state.trouble}" if state.trouble else ""
    text = f"Pod {meta['namespace']}/{meta['name']} of {plugin.title} {state.summary}{trouble}"
    log = f"`kubectl logs -n {meta['namespace']} {meta['name']}` shows more"
    if plugin.resource == GPU and not group.has_driver:
        hint = f"the image {group.ami} has no NVIDIA driver: make a group of another name with an NVIDIA image"
        return Cause(f"{text}; the image {group.ami} has no driver", hint)
    if plugin.resource == EFA and "exit code 0" in state.trouble:
        return Cause(f"{text}; the node was launched without EFA", "make the group again: its launch template has none")
    if state.ready:
        missing = "no GPU: is the driver loaded" if plugin.resource == GPU else "no EFA: is its kernel module loaded"
        return Cause(f"{text}, and reports {missing}?", log, passes=True)
    return Cause(text, log, passes=not state.trouble)


def _no_pod(node: Object, daemon_set: Object) -> Cause:
    """Cause of a plugin without a pod on a node: a taint, labels, or a controller that is not that far."""
    shown = title(daemon_set)
    spec = daemon_set["spec"]["template"]["spec"]
    ours = is_gpuctls(daemon_set)
    taints = sorted(_untolerated(node, spec), key=_is_of_start)  # one that stays is the cause before one that goes
    for taint in taints[:1]:
        text = f"{shown} does not tolerate the taint {taint.get('key')}:{taint.get('effect')}"
        if _is_of_start(taint):
            hint = (
                "its controller removes it once the node has started: `kubectl get pods -A` shows whether that one runs"
            )
            return Cause(text, hint, passes=True)
        mend = "add the taint to `taints` of the group in the file" if ours else "have its owner tolerate the taint"
        return Cause(text, f"{mend}; {AGAIN}")
    if not selects(daemon_set, node):
        text = f"{shown} does not select this node by its labels"
        return Cause(text, "run `gpuctl eks resume`" if ours else f"have its owner select these nodes; {AGAIN}")
    return Cause(f"{shown} {NO_POD}", "`kubectl describe` of that DaemonSet shows its events", passes=True)


def _untolerated(node: Object, spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Taints of a node that keep a pod of a DaemonSet away."""
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") == "PreferNoSchedule" or str(taint.get("key")).startswith(TOLERATED):
            continue
        if not any(_tolerates(one, taint) for one in spec.get("tolerations") or ()):
            yield taint


def _is_of_start(taint: Mapping[str, Any]) -> bool:
    return str(taint.get("key")).rpartition("/")[2] in STARTUP


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def selects(daemon_set: Object, node: Object, *, later: bool = False) -> bool:
    """False if labels of a node do not match; True also for rules other than In, which are not judged.

    `later`: labels that a feature discovery sets after a node has joined count as matching while they are missing.
    """
    labels = node["metadata"].get("labels") or {}

    def fits(key: str, values: Sequence[Any]) -> bool:
        return labels.get(key) in values or (later and key not in labels and key.startswith(DISCOVERED))

    chosen = (daemon_set["spec"]["template"]["spec"].get("nodeSelector") or {}).items()
    terms = _terms(daemon_set)
    return all(fits(key, [value]) for key, value in chosen) and (
        not terms or any(all(fits(one["key"], one["values"]) for one in _judged(term)) for term in terms)
    )


def _terms(daemon_set: Object) -> Sequence[Mapping[str, Any]]:
    affinity = (daemon_set["spec"]["template"]["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()


def _judged(term: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in term.get("matchExpressions") or () if one.get("operator") == "In"]


def is_sure(daemon_set: Object) -> bool:
    """True if `selects` judges all rules of a DaemonSet."""
    terms = _terms(daemon_set)
    return all(len(_judged(one)) == len(one.get("matchExpressions") or ()) for one in terms) and not any(
        one.get("matchFields") for one in terms
    )


def takes_all(daemon_set: Object) -> bool:
    """True for a DaemonSet that has no rule for nodes: it selects each."""
    return not daemon_set["spec"]["template"]["spec"].get("nodeSelector") and not _terms(daemon_set)


def rollout(daemon_set: Object) -> str:
    """State of the change of a DaemonSet while pods of it restart, for people; "" once all run the new template."""
    generation, status = daemon_set["metadata"].get("generation") or 0, daemon_set.get("status") or {}
    if (status.get("observedGeneration") or 0) < generation:
        return f"the change of {title(daemon_set)} is not taken up yet"
    desired = status.get("desiredNumberScheduled") or 0
    done = min(status.get("updatedNumberScheduled") or 0, status.get("numberReady") or 0)
    return "" if done >= desired else f"{done} of {plural(desired, 'pod')} of {title(daemon_set)} run its new template"
