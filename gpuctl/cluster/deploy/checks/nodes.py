"""Preflight of the nodes: GPUs, adapters, cores and memory, and who uses the GPUs now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches

from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.deploy.model import is_ours
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import placement
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.domain.quantity import amount, at_least

MOST_NAMED = 4
SELECTOR = "nodes.selector"
CORRECT_SELECTOR = "correct nodes.selector in the cluster file; `kubectl get nodes --show-labels`"


def gpus(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Count the nodes that accept the pods and have the GPUs."""
    if snapshot.nodes.why:
        return [Finding("gpus", env.cluster.gpus.resource, Verdict.UNKNOWN, snapshot.nodes.why)]
    if why := unmatched_selector(env.cluster.nodes.selector, snapshot.nodes.value):
        return [Finding("gpus", SELECTOR, Verdict.FAIL, why, hint=CORRECT_SELECTOR)]
    whys = {
        name_of(node): _unselected(env, node) or _excluded(env, node) or _lacks(node, of_gpus(env))
        for node in _gpu_nodes(env, snapshot)
    }
    missing = {name: "the node does not exist" for name in env.cluster.nodes.gpu_nodes if name not in whys}
    hint = "correct gpus.per_node, gpus.resource or nodes, or use fewer --nodes"
    return [_enough(env, "gpus", env.cluster.gpus.resource, {**whys, **missing}, hint)]


def unmatched_selector(selector: Mapping[str, str], nodes: Sequence[Object]) -> str:
    """Return why no node has all labels of a selector, with the nearest labels of nodes; "" if a node has them."""
    labels = [_labels(node) for node in nodes]
    if not labels or any(selector.items() <= node_labels.items() for node_labels in labels):
        return ""
    unmatched = [
        f"{key}={value}{_nearest(key, value, labels)}"
        for key, value in selector.items()
        if all(node_labels.get(key) != value for node_labels in labels)
    ]
    if not unmatched:
        return f"each label of {SELECTOR} is on some node, and no node has all of them"
    return f"no node has all labels of {SELECTOR}; none has {', '.join(unmatched)}"


def _nearest(key: str, value: str, labels: Sequence[Mapping[str, str]]) -> str:
    """Return the values of this label, else those of labels with a similar name or this value."""
    known: dict[str, set[str]] = {}
    for node_labels in labels:
        for name, existing in node_labels.items():
            known.setdefault(name, set()).add(existing)
    names = (
        [key] if key in known else [*get_close_matches(key, known), *(name for name in known if value in known[name])]
    )
    nearest = [f"{name}={existing}" for name in dict.fromkeys(names) for existing in sorted(known[name])]
    return f" (nodes have {_first(nearest)})" if nearest else ""


def adapters(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Count the nodes that have the RDMA adapters too, if enough have the GPUs."""
    needed, having = of_adapters(env), _usable(env, snapshot, of_gpus(env))
    if not needed or snapshot.nodes.why or len(having) < env.nodes:
        return []
    whys = {name_of(node): _lacks(node, needed) for node in having}
    hint = "network.rdma.resources: is their device plugin running? `kubectl describe node` shows what the nodes offer"
    return [_enough(env, "adapters", ", ".join(needed), whys, hint)]


def room(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Count the nodes with enough cores and memory, if enough have GPUs and adapters."""
    having = _usable(env, snapshot, {**of_gpus(env), **of_adapters(env)})
    if snapshot.nodes.why or len(having) < env.nodes:
        return []
    whys = {name_of(node): _lacks(node, of_room(env)) for node in having}
    return [_enough(env, "room", "cores and memory", whys, "correct resources")]


def busy(env: Environment, snapshot: ClusterSnapshot) -> list[Finding]:
    """Warn about nodes whose GPUs are in use by others: pods wait for them."""
    if snapshot.nodes.why:
        return []
    subject = env.cluster.gpus.resource
    if snapshot.pods.why:
        return [Finding("in use", subject, Verdict.UNKNOWN, f"it is not known who uses GPUs now: {snapshot.pods.why}")]
    usable = _usable(env, snapshot, {**of_gpus(env), **of_adapters(env), **of_room(env)})
    others = [
        pod for pod in snapshot.pods.value if not (is_ours(env, pod) and pod["metadata"]["namespace"] == env.namespace)
    ]
    taken = {name_of(node): _taken(node, others, of_gpus(env)) for node in usable}
    free = [name for name, who in taken.items() if not who]
    if len(free) >= env.nodes or len(usable) < env.nodes:
        return []
    holders = "; ".join(f"{name} by {', '.join(who[:3])}" for name, who in sorted(taken.items()) if who)
    message = f"{len(free)} of the {env.nodes} nodes are free now ({holders}): pods wait for the others"
    return [Finding("in use", subject, Verdict.WARN, message)]


def of_gpus(env: Environment) -> dict[str, str]:
    return {env.cluster.gpus.resource: str(env.cluster.gpus.per_node)}


def of_adapters(env: Environment) -> dict[str, str]:
    return {name: str(count) for name, count in env.cluster.network.rdma.resources.items()} if env.rdma else {}


def of_room(env: Environment) -> dict[str, str]:
    pod = env.cluster.resources
    pages = {"hugepages-2Mi": pod.hugepages_2mi} if env.rdma and pod.hugepages_2mi else {}
    return {"cpu": pod.cpu, "memory": pod.memory, **pages}


def name_of(node: Object) -> str:
    return str(node["metadata"]["name"])


def _enough(env: Environment, check: str, subject: str, whys: Mapping[str, str], hint: str) -> Finding:
    """Judge whether enough nodes have no reason against them."""
    fit = [name for name, why in whys.items() if not why]
    if len(fit) >= env.nodes:
        return Finding(check, subject, Verdict.OK, f"{len(fit)} nodes can take a pod; {env.nodes} are needed")
    reasons = "; ".join(_grouped(whys))
    message = f"{len(fit)} of the {env.nodes} nodes that are needed can take a pod" + (
        f" ({reasons})" if reasons else ""
    )
    return Finding(check, subject, Verdict.FAIL, message, hint=hint)


def _grouped(whys: Mapping[str, str]) -> list[str]:
    """List each reason once, with the nodes it applies to."""
    groups: dict[str, list[str]] = {}
    for name, why in sorted(whys.items()):
        groups.setdefault(why, []).append(name)
    return [f"{_first(names)}: {why}" for why, names in groups.items() if why][:MOST_NAMED]


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + " and more" * (len(names) > MOST_NAMED)


def _gpu_nodes(env: Environment, snapshot: ClusterSnapshot) -> list[Object]:
    """Return the named nodes, or all nodes that have GPUs."""
    names, gpu = env.cluster.nodes.gpu_nodes, env.cluster.gpus.resource
    return [
        node
        for node in snapshot.nodes.value
        if (name_of(node) in names if names else gpu in (node["status"].get("allocatable") or {}))
    ]


def _usable(env: Environment, snapshot: ClusterSnapshot, needed: Mapping[str, str]) -> list[Object]:
    return [
        node
        for node in _gpu_nodes(env, snapshot)
        if not (_unselected(env, node) or _excluded(env, node) or _lacks(node, needed))
    ]


def _unselected(env: Environment, node: Object) -> str:
    """Return which labels of nodes.selector the node lacks, or "" if it has them."""
    labels = _labels(node)
    missing = [f"{key}={value}" for key, value in env.cluster.nodes.selector.items() if labels.get(key) != value]
    return f"it does not have {', '.join(missing)} of {SELECTOR}" if missing else ""


def _labels(node: Object) -> dict[str, str]:
    return node["metadata"].get("labels") or {}


def _excluded(env: Environment, node: Object) -> str:
    """Return why the node accepts no pods of ours, or "" if it does."""
    if why := away(node):
        return why
    tolerated = [toleration["key"] for toleration in placement.where(env)["tolerations"]]
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and taint["key"] not in tolerated:
            return f"it is tainted {taint['key']}={taint.get('value', '')}:{taint['effect']}"
    return ""


def away(node: Object) -> str:
    """Return why the node accepts no new pods at all, or "" if it does."""
    if node["spec"].get("unschedulable"):
        return "it is cordoned"
    ready = [condition for condition in node["status"].get("conditions") or [] if condition["type"] == "Ready"]
    if ready and ready[0]["status"] != "True":
        return f"it is not ready: {ready[0].get('message') or ready[0].get('reason') or 'no reason given'}"
    return ""


def _lacks(node: Object, needed: Mapping[str, str]) -> str:
    has = node["status"].get("allocatable") or {}
    return ", ".join(
        f"it has {has.get(name, '0')} of the {count} {name} that a pod requests"
        for name, count in needed.items()
        if not at_least(has.get(name, "0"), count)
    )


def _taken(node: Object, pods: Iterable[Object], needed: Mapping[str, str]) -> list[str]:
    """Return the pods that leave too little of a resource on the node; empty if enough is left."""
    on_node = [pod for pod in pods if pod["spec"].get("nodeName") == name_of(node)]
    for name, count in needed.items():
        has = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": requested(pod, name) for pod in on_node}
        free = (amount((node["status"].get("allocatable") or {}).get(name, "0")) or Decimal(0)) - sum(has.values())
        if free < (amount(count) or Decimal(0)):
            return sorted(who for who, much in has.items() if much)
    return []


def requested(pod: Object, name: str) -> Decimal:
    """Return a pod's effective request of a resource: the sum of its containers, or its largest init container."""
    main = [_wants(container, name) for container in pod["spec"].get("containers") or []]
    init = [_wants(container, name) for container in pod["spec"].get("initContainers") or []]
    return max([sum(main, Decimal(0)), *init])


def _wants(container: Object, name: str) -> Decimal:
    resources = container.get("resources") or {}
    both = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return amount(both.get(name, "0")) or Decimal(0)
