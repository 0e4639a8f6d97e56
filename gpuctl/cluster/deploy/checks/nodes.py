"""Whether enough nodes have what a pod asks for, and who has it now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from gpuctl.cluster.deploy.cluster_snapshot import There
from gpuctl.cluster.deploy.model import is_ours
from gpuctl.cluster.deploy.quantity import amount, at_least
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import placement
from gpuctl.domain.findings import Finding, Verdict

MOST_NAMED = 4


def gpus(env: Environment, there: There) -> list[Finding]:
    """Nodes that take our pods and have the GPUs."""
    if there.nodes.why:
        return [Finding("gpus", env.cluster.gpus.resource, Verdict.UNKNOWN, there.nodes.why)]
    whys = {name_of(node): _closed(env, node) or _lacks(node, of_gpus(env)) for node in _meant(env, there)}
    missing = {name: "there is no such node" for name in env.cluster.nodes.gpu_nodes if name not in whys}
    hint = "mend gpus.per_node, gpus.resource or nodes, or take fewer --nodes"
    return [_enough(env, "gpus", env.cluster.gpus.resource, {**whys, **missing}, hint)]


def adapters(env: Environment, there: There) -> list[Finding]:
    """Of these, where they are enough, nodes that have the RDMA adapters, too."""
    wanted, having = of_adapters(env), _usable(env, there, of_gpus(env))
    if not wanted or there.nodes.why or len(having) < env.nodes:
        return []
    whys = {name_of(node): _lacks(node, wanted) for node in having}
    hint = "network.rdma.resources: is their device plugin running? `kubectl describe node` shows what nodes have"
    return [_enough(env, "adapters", ", ".join(wanted), whys, hint)]


def room(env: Environment, there: There) -> list[Finding]:
    """Of these, where they are enough, nodes with the cores and memory."""
    having = _usable(env, there, {**of_gpus(env), **of_adapters(env)})
    if there.nodes.why or len(having) < env.nodes:
        return []
    whys = {name_of(node): _lacks(node, of_room(env)) for node in having}
    return [_enough(env, "room", "cores and memory", whys, "mend resources")]


def busy(env: Environment, there: There) -> list[Finding]:
    """Nodes whose GPUs others have now: our pods wait for them."""
    if there.nodes.why:
        return []
    subject = env.cluster.gpus.resource
    if there.pods.why:
        return [Finding("in use", subject, Verdict.UNKNOWN, f"who has GPUs now is not known: {there.pods.why}")]
    usable = _usable(env, there, {**of_gpus(env), **of_adapters(env), **of_room(env)})
    others = [
        pod for pod in there.pods.value if not (is_ours(env, pod) and pod["metadata"]["namespace"] == env.namespace)
    ]
    taken = {name_of(node): _taken(node, others, of_gpus(env)) for node in usable}
    free = [name for name, who in taken.items() if not who]
    if len(free) >= env.nodes or len(usable) < env.nodes:
        return []
    held = "; ".join(f"{name} by {', '.join(who[:3])}" for name, who in sorted(taken.items()) if who)
    words = f"{len(free)} of the {env.nodes} nodes are free now ({held}): pods wait for the others"
    return [Finding("in use", subject, Verdict.WARN, words)]


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
    """Counts the nodes without a reason against them."""
    fit = [name for name, why in whys.items() if not why]
    if len(fit) >= env.nodes:
        return Finding(check, subject, Verdict.OK, f"{len(fit)} nodes can take a pod; {env.nodes} are needed")
    told = "; ".join(_grouped(whys))
    words = f"{len(fit)} of the {env.nodes} nodes that are needed can take a pod" + (f" ({told})" if told else "")
    return Finding(check, subject, Verdict.FAIL, words, hint=hint)


def _grouped(whys: Mapping[str, str]) -> list[str]:
    """Each reason once, with the nodes that it holds for."""
    groups: dict[str, list[str]] = {}
    for name, why in sorted(whys.items()):
        groups.setdefault(why, []).append(name)
    return [
        f"{', '.join(names[:MOST_NAMED])}{' and more' * (len(names) > MOST_NAMED)}: {why}"
        for why, names in groups.items()
        if why
    ][:MOST_NAMED]


def _meant(env: Environment, there: There) -> list[Object]:
    """GPU nodes, or those that are named; with the labels that are asked for."""
    nodes, gpu = env.cluster.nodes, env.cluster.gpus.resource
    return [
        each
        for each in there.nodes.value
        if (name_of(each) in nodes.gpu_nodes if nodes.gpu_nodes else gpu in (each["status"].get("allocatable") or {}))
        and nodes.selector.items() <= (each["metadata"].get("labels") or {}).items()
    ]


def _usable(env: Environment, there: There, wanted: Mapping[str, str]) -> list[Object]:
    return [node for node in _meant(env, there) if not (_closed(env, node) or _lacks(node, wanted))]


def _closed(env: Environment, node: Object) -> str:
    """Why it takes no pods of ours; empty where it does."""
    if why := away(node):
        return why
    tolerated = [each["key"] for each in placement.where(env)["tolerations"]]
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and taint["key"] not in tolerated:
            return f"it is tainted {taint['key']}={taint.get('value', '')}:{taint['effect']}"
    return ""


def away(node: Object) -> str:
    """Why it takes no new pods at all; empty where it does."""
    if node["spec"].get("unschedulable"):
        return "it is cordoned"
    ready = [each for each in node["status"].get("conditions") or [] if each["type"] == "Ready"]
    if ready and ready[0]["status"] != "True":
        return f"it is not ready: {ready[0].get('message') or ready[0].get('reason') or 'no reason given'}"
    return ""


def _lacks(node: Object, wanted: Mapping[str, str]) -> str:
    has = node["status"].get("allocatable") or {}
    return ", ".join(
        f"it has {has.get(name, '0')} of the {count} {name} that a pod asks for"
        for name, count in wanted.items()
        if not at_least(has.get(name, "0"), count)
    )


def _taken(node: Object, pods: Iterable[Object], wanted: Mapping[str, str]) -> list[str]:
    """Who of others has so much of it that not enough is left; nobody where enough is."""
    here = [pod for pod in pods if pod["spec"].get("nodeName") == name_of(node)]
    for name, count in wanted.items():
        has = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": requested(pod, name) for pod in here}
        free = (amount((node["status"].get("allocatable") or {}).get(name, "0")) or Decimal(0)) - sum(has.values())
        if free < (amount(count) or Decimal(0)):
            return sorted(who for who, much in has.items() if much)
    return []


def requested(pod: Object, name: str) -> Decimal:
    """How much of a resource a pod holds: its containers together, or an init container that wants more."""
    main = [_wants(each, name) for each in pod["spec"].get("containers") or []]
    init = [_wants(each, name) for each in pod["spec"].get("initContainers") or []]
    return max([sum(main, Decimal(0)), *init])


def _wants(container: Object, name: str) -> Decimal:
    resources = container.get("resources") or {}
    both = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return amount(both.get(name, "0")) or Decimal(0)
