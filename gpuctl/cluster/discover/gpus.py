"""The draft's sections on nodes, GPUs and the resources of a pod."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.cluster.clusterfile.field_types import bytes_of
from gpuctl.cluster.deploy.checks.nodes import name_of
from gpuctl.cluster.discover.draft_yaml import Line, known, unknown
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.discover.fleet import COUNT, GIB, GPU, INSTANCE, PRODUCT, Fleet, Group, labels, least, room
from gpuctl.cluster.environment import Object

TOPOLOGY = "topology.k8s.aws/network-node-layer-3"  # examples/clusters/p5-efa-eks.yaml
SHM = "32Gi"  # the default of resources.shm
EFA_PAGES = "5120Mi"  # awsome-distributed-training, micro-benchmarks/nccl-tests/kubernetes
MOST_NAMED = 8
FIRST_TRY = 2  # pods where no --nodes is given


def nodes(facts: Facts, fleet: Fleet, flavour: str, adapters: tuple[str, ...]) -> Iterator[Line]:
    group, path = fleet.chosen, "nodes.gpu_nodes"
    if group is None:
        yield unknown(path, _none(facts, fleet), "the nodes by name, or omit it to use every GPU node")
        return
    comments = [f"{len(group.nodes)} nodes with {group.description} each (by {_where(group)}). Default: all GPU nodes."]
    comments += [f"Not included: {left_out}." for left_out in _left_out(fleet)]
    if flavour == "eks" and (kind := _instance(group)):
        comments += [
            f"Node groups create nodes with new names: `selector: {{{INSTANCE}: {kind}}}` instead of this matches all."
        ]
    yield known(path, group.names, *comments)
    yield from _tolerations(group, (GPU, *adapters))
    if all(TOPOLOGY in labels(node) for node in group.nodes):
        message = "All these nodes have this label of the nearest network layer: pods are placed where it is the same."
        yield known("nodes.topology_key", TOPOLOGY, message)


def _tolerations(group: Group, tolerated: tuple[str, ...]) -> Iterator[Line]:
    """Tolerate only taints that all nodes of the group share; the others may mark other users' nodes, or repairs."""
    path, of = "nodes.tolerations", {name_of(node): _taints(node) - set(tolerated) for node in group.nodes}
    common = set.intersection(*of.values())
    some = {key: tuple(name for name in of if key in of[name]) for key in sorted(set.union(*of.values()) - common)}
    tainted = "; ".join(f"{key} ({_names(names)})" for key, names in some.items())
    comments = ["Taints of all these nodes, besides those named after GPUs and adapters."]
    comments += [f"Omitted, because only some nodes have them: {tainted}."] if some else []
    if common:
        yield known(path, tuple(sorted(common)), *comments)
    elif some:
        yield unknown(path, f"only some of these nodes have taints: {tainted}", "the taints that your pods tolerate")


def gpus(facts: Facts, fleet: Fleet) -> Iterator[Line]:
    group = fleet.chosen
    if group is None:
        why = _none(facts, fleet)
        yield unknown("gpus.per_node", why, f"how many {GPU} a node has (`kubectl describe node`)", needed=True)
        yield unknown("gpus.type", why, "the GPU model; informational")
        return
    yield known("gpus.per_node", group.gpus, f"From {_where(group)} of these nodes.")
    if group.product:
        yield known("gpus.type", group.product, f"The label {PRODUCT}.")
    else:
        kind = f"; their instance type is {_instance(group)}" if _instance(group) else ""
        why = f"no label {PRODUCT} (GPU feature discovery does not run){kind}"
        yield unknown("gpus.type", why, "the model that `nvidia-smi` prints on a node; informational")
    count = min(FIRST_TRY, len(group.nodes))
    yield known("gpus.default_nodes", count, f"A first try; there are {len(group.nodes)}. `--nodes` requests more.")


def resources(facts: Facts, fleet: Fleet, fabric: str) -> Iterator[Line]:
    group = fleet.chosen
    if group is None:
        for name, what in (("cpu", "whole cores"), ("memory", "memory such as 256Gi")):
            fill = f"{what}: most of what a GPU node has"
            yield unknown(f"resources.{name}", _none(facts, fleet), fill, needed=True)
        return
    pod_room = room(group.nodes, facts.pods.value)
    daemons = "the requests of daemons are subtracted"
    if facts.pods.why:
        daemons = f"daemons are not counted, because pods cannot be read ({facts.pods.why})"
    comment = f"Nine tenths of the allocatable cores of the smallest of these nodes; {daemons}."
    yield _or_unknown(
        "resources.cpu", pod_room.cores, pod_room.cores, f"{comment} An even number: cores have two threads."
    )
    yield _or_unknown(
        "resources.memory", pod_room.memory // GIB, f"{pod_room.memory // GIB}Gi", "The same share of its memory."
    )
    yield from _shared(pod_room.memory)
    yield from _pages(group, fabric)


def _or_unknown(path: str, much: int, value: object, comment: str) -> Line:
    if much:
        return known(path, value, comment)
    return unknown(path, "the smallest of these nodes has too little left", "the resources of a pod", needed=True)


def _shared(memory: int) -> Iterator[Line]:
    if 0 < memory <= 2 * bytes_of(SHM):
        size = f"{memory // 2**20 // 2}Mi"
        yield known("resources.shm", size, f"Half of the memory: the default of {SHM} would leave too little.")


def _pages(group: Group, fabric: str) -> Iterator[Line]:
    path, has = "resources.hugepages_2mi", least(group.nodes, "hugepages-2Mi")
    if fabric != "efa":
        return
    if has >= bytes_of(EFA_PAGES):
        message = (
            f"libfabric's EFA provider allocates its buffers from them; each node has {int(has) // 2**20}Mi or more."
        )
        yield known(path, EFA_PAGES, message)
    else:
        why = f"nodes have {int(has) // 2**20}Mi of them, and EFA needs {EFA_PAGES}"
        yield unknown(path, why, "set it once the nodes have them, or omit it: EFA works without, more slowly")


# ---- text -----------------------------------------------------------------------------------------------------------


def _none(facts: Facts, fleet: Fleet) -> str:
    """Return why there is no group of nodes."""
    if facts.nodes.why:
        return f"nodes cannot be read ({facts.nodes.why})"
    if fleet.out:
        return f"no GPU node can be used: {'; '.join(_grouped(fleet))}"
    return f"none of the {len(facts.nodes.value)} nodes has {GPU}"


def _where(group: Group) -> str:
    return f"the label {COUNT}" if all(COUNT in labels(node) for node in group.nodes) else f"allocatable {GPU}"


def _instance(group: Group) -> str:
    """Return the instance type if all nodes have the same."""
    kinds = {labels(node).get(INSTANCE, "") for node in group.nodes}
    return kinds.pop() if len(kinds) == 1 else ""


def _left_out(fleet: Fleet) -> Iterator[str]:
    for other in fleet.groups[1:]:
        yield f"{_names(other.names)}, with {other.description} each"
    yield from _grouped(fleet)


def _grouped(fleet: Fleet) -> Iterator[str]:
    whys: dict[str, list[str]] = {}
    for name, why in fleet.out.items():
        whys.setdefault(why, []).append(name)
    return (f"{_names(tuple(names))}: {why}" for why, names in whys.items())


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _taints(node: Object) -> set[str]:
    """Return the node's taints without Kubernetes' own, which are temporary and mark trouble."""
    return {
        taint["key"]
        for taint in node["spec"].get("taints") or []
        if taint["effect"] in ("NoSchedule", "NoExecute") and not taint["key"].startswith("node.kubernetes.io/")
    }
