"""Judge the GPUs and EFA interfaces that nodes offer to pods, with the cause where some are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Number, Verdict, fail, warn
from gpuctl.domain.kube_nodes import GPU, READY, gpus, reason
from gpuctl.eks.device_plugins import EFA, PLUGINS, GroupNodes, Plugin, offered, title

Object = dict[str, Any]
CHECK = "gpu-resources"
AGAIN = "then run `gpuctl eks resume`"
TITLES = {GPU: "GPU", EFA: "EFA interface"}
# Taints that the controller of DaemonSets has every pod of one tolerate. Source: Kubernetes documentation, DaemonSet.
TOLERATED = ("node.kubernetes.io/",)


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
    """Objects of Kubernetes. `nodes`: by group. `plugins`: DaemonSet of a resource, None for one that the image brings.

    `pods`: node -> pods of plugins on it; only of nodes that lack a resource.
    """

    nodes: Mapping[str, Sequence[Object]]
    plugins: Mapping[str, Object | None]
    pods: Mapping[str, Sequence[PluginPod]]


def name(node: Object) -> str:
    return str(node["metadata"]["name"])


def lacking(group: GroupNodes, node: Object) -> dict[str, tuple[int, int]]:
    """Resource -> number that the node offers, and the number that it should."""
    counts = {resource: (_count(node, resource), number) for resource, number in group.needs.items()}
    return {resource: pair for resource, pair in counts.items() if pair[0] < pair[1]}


def _count(node: Object, resource: str) -> int:
    if resource == GPU:  # slices of GPUs count, as a plugin of others may make them
        return gpus((node.get("status") or {}).get("allocatable"))
    return offered(node, resource)


def progress(groups: Sequence[GroupNodes], nodes: Mapping[str, Sequence[Object]]) -> str:
    """State of groups that still lack nodes or resources; "" if none does."""
    parts = []
    for group in groups:
        complete = [one for one in nodes[group.group] if not lacking(group, one)]
        if len(complete) < group.desired or len(complete) < len(nodes[group.group]):
            most = max(group.desired, len(nodes[group.group]))
            parts.append(f"{len(complete)} of {plural(most, 'node')} of {group.group} offer {_needs(group)}")
    return "; ".join(parts)


def _needs(group: GroupNodes) -> str:
    return " and ".join(plural(number, TITLES[resource]) for resource, number in group.needs.items())


def judge(group: GroupNodes, observed: Observation) -> Finding:
    """Finding on the nodes of a group."""
    nodes = observed.nodes[group.group]
    short = [one for one in nodes if lacking(group, one)]
    numbers: dict[str, Number] = {"nodes": len(nodes), "desired_nodes": group.desired, "nodes_lacking": len(short)}
    if short:
        several = causes(group, short, observed)
        hint = next((one.hint for one in several if one.hint), f"correct it, {AGAIN}")
        verb = "does" if len(short) == 1 else "do"
        message = f"{len(short)} of {plural(len(nodes), 'node')} {verb} not offer {_needs(group)}: "
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
    each = " each" if len(nodes) > 1 else ""
    message = f"{plural(len(nodes), 'node')} offer{'s' if len(nodes) == 1 else ''} {_needs(group)}{each}"
    return Finding(CHECK, group.group, Verdict.OK, message, numbers)


def causes(group: GroupNodes, nodes: Sequence[Object], observed: Observation) -> list[Cause]:
    """Causes of what these nodes lack, each once with the first node that has it."""
    several: dict[str, Cause] = {}
    for node in nodes:
        for one in _causes(group, node, observed):
            several.setdefault(one.text, replace(one, text=f"{name(node)}: {one.text}"))
    return list(several.values())


def _causes(group: GroupNodes, node: Object, observed: Observation) -> Iterator[Cause]:
    conditions = {str(one.get("type")): one for one in (node.get("status") or {}).get("conditions") or ()}
    ready = conditions.get(READY, {})
    if ready.get("status") != "True":
        yield Cause(
            f"its kubelet is not ready: {reason(ready)}", "`kubectl describe node` shows its conditions", passes=True
        )
        return
    for resource, (count, number) in lacking(group, node).items():
        plugin = next(one for one in PLUGINS if one.resource == resource)
        if count:
            text = f"it offers {count} of {plural(number, TITLES[resource])}: the others are withheld"
            yield Cause(text, "`gpuctl audit` of the node shows faults of its hardware")
        else:
            yield _cause(group, node, plugin, observed)


def _cause(group: GroupNodes, node: Object, plugin: Plugin, observed: Observation) -> Cause:
    daemon_set = observed.plugins.get(plugin.resource)
    if daemon_set is None:
        text = f"{plugin.title}, which the image {group.ami} brings, offers none"
        return Cause(text, "read the journal of kubelet on the node")
    uid = daemon_set["metadata"]["uid"]
    for one in observed.pods.get(name(node), ()):
        if any(owner.get("uid") == uid for owner in one.pod["metadata"].get("ownerReferences") or ()):
            return _of_pod(group, plugin, one)
    return _no_pod(node, daemon_set)


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
    hint = f"change that DaemonSet, or remove it; {AGAIN}"
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") == "PreferNoSchedule" or str(taint.get("key")).startswith(TOLERATED):
            continue
        if not any(_tolerates(one, taint) for one in spec.get("tolerations") or ()):
            return Cause(f"{shown} does not tolerate the taint {taint.get('key')}:{taint.get('effect')}", hint)
    if not _selects(spec, node["metadata"].get("labels") or {}):
        return Cause(f"{shown} does not select this node by its labels", hint)
    return Cause(f"{shown} has no pod on it yet", "`kubectl describe` of that DaemonSet shows its events", passes=True)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def _selects(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """False if labels of a node do not match; True also for rules other than In, which are not judged."""
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    return not terms or any(_matches(one, labels) for one in terms)


def _matches(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    rules = [one for one in term.get("matchExpressions") or () if one.get("operator") == "In"]
    return all(labels.get(one["key"]) in one["values"] for one in rules)
