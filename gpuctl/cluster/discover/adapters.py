"""The draft's section on networks: RDMA, as far as nodes and network attachments tell it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuctl.cluster.discover.draft_yaml import UNKNOWN, Line, known, unknown
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.discover.fleet import GPU, MIG, Fleet, allocatable, least
from gpuctl.cluster.environment import Object

RDMA = "network.rdma"
EFA = "vpc.amazonaws.com/efa"  # aws/eks-charts, aws-efa-k8s-device-plugin
# Prefixes of k8snetworkplumbingwg's device plugins: shared RDMA devices, and SR-IOV as OpenShift and NVIDIA set it up.
PREFIXES = ("rdma/", "openshift.io/", "nvidia.com/")
ANNOTATION = "k8s.v1.cni.cncf.io/resourceName"
# What a CNI plugin is for: sriov-cni and macvlan are for Ethernet, ib-sriov-cni and ipoib-cni for InfiniBand.
FABRICS = {"sriov": "roce", "macvlan": "roce", "ib-sriov": "infiniband", "ipoib": "infiniband"}


@dataclass(frozen=True)
class Network:
    """A NetworkAttachmentDefinition; `resource` and `plugin` are empty where it does not say them."""

    name: str
    resource: str
    plugin: str

    @property
    def words(self) -> str:
        return f"{self.name} (plugin {self.plugin or UNKNOWN}, {self.resource or 'of no resource'})"


@dataclass(frozen=True)
class Rdma:
    """What of RDMA is there: resources and how many of each a pod is to ask for, and the networks of these."""

    resources: Mapping[str, int] = field(default_factory=dict)
    networks: tuple[Network, ...] = ()
    fabric: str = ""
    said: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.resources)


def rdma(facts: Facts, fleet: Fleet) -> Rdma:
    """What the nodes of the draft have, each of them."""
    has = _adapters(fleet)
    told = tuple(f"Each of the nodes has {count} {name} (allocatable)." for name, count in has.items())
    told += tuple(f"Network attachment {each.words}." for each in networks(facts))
    if count := has.get(EFA):
        return Rdma({EFA: count}, (), "efa", told)
    chosen = tuple(each for each in networks(facts) if each.resource in has)
    if chosen:
        found = {_fabric(each) for each in chosen}
        fabric = found.pop() if len(found) == 1 else ""
        return Rdma(dict.fromkeys((each.resource for each in chosen), 1), chosen, fabric, told)
    return Rdma(dict.fromkeys(has, 1), (), "", told)


def network(facts: Facts, fleet: Fleet, found: Rdma) -> Iterator[Line]:
    yield Line(RDMA, None, (*found.said, *_unread(facts)))
    yield from _rdma(facts, fleet, found)
    why = "the API does not tell the interfaces of nodes"
    yield unknown("network.tcp.interface_exclude", why, "those that reach no other node; left out: lo, docker0")


def _rdma(facts: Facts, fleet: Fleet, found: Rdma) -> Iterator[Line]:
    if facts.nodes.why or fleet.chosen is None:
        why = f"nodes may not be read ({facts.nodes.why})" if facts.nodes.why else "there is no GPU node to look at"
        fill = "true, with fabric and resources, where GPU nodes have adapters for pods; left out: TCP"
        yield unknown(f"{RDMA}.enabled", why, fill)
        return
    if not found.resources:
        kinds = ", ".join((EFA, *(f"{each}*" for each in PREFIXES)))
        yield known(
            f"{RDMA}.enabled", False, f"None of the resources that bring adapters into pods is on all nodes: {kinds}."
        )
        return
    yield known(f"{RDMA}.enabled", True, "The nodes have resources that bring adapters into pods.")
    yield _fabric_line(found)
    yield known(f"{RDMA}.resources", dict(found.resources), _how_many(found))
    yield from _attachments(facts, found)
    yield from _inside(found)


def _fabric_line(found: Rdma) -> Line:
    path = f"{RDMA}.fabric"
    if found.fabric == "efa":
        return known(path, "efa", f"The resource {EFA}.")
    if found.fabric:
        plugins = ", ".join(sorted({each.plugin for each in found.networks}))
        return known(path, found.fabric, f"The plugin of the attachments ({plugins}) is for it.")
    why = "neither resources nor attachments tell what the adapters speak"
    return unknown(path, why, "roce or infiniband: `rdma link` or `ibv_devinfo` on a node tells it", needed=True)


def _how_many(found: Rdma) -> str:
    if found.fabric == "efa":
        return "All that each of the nodes has."
    whether = "Whether they do RDMA (isRdma of a SriovNetworkNodePolicy) nodes do not tell."
    return f"One of each a pod; how many a pod can have beside others' is for their admin to say. {whether}"


def _attachments(facts: Facts, found: Rdma) -> Iterator[Line]:
    path = f"{RDMA}.attachments"
    if found.fabric == "efa":
        return
    if len(set(found.networks)) > len({each.resource for each in found.networks}):
        names = ", ".join(each.words for each in found.networks)
        yield unknown(path, f"several networks are of one resource: {names}", "one for each adapter, in their order")
    elif found.networks:
        yield known(path, tuple(each.name for each in found.networks), "Those whose resource the nodes have.")
    else:
        why = _unread(facts) or (f"no attachment in {facts.namespace} names one of these resources ({ANNOTATION})",)
        yield unknown(path, why[0].rstrip("."), "the networks of the adapters, or `host_network: true`")


def _inside(found: Rdma) -> Iterator[Line]:
    """What only a look into a node or pod tells."""
    why = "it takes a look into a node or a pod, which the API does not give"
    if found.fabric != "efa":
        yield unknown(f"{RDMA}.devices", why, "names as `rdma link` in a pod shows them; left out, NCCL looks for them")
        if not found.networks:
            yield unknown(f"{RDMA}.interfaces", why, "those of the adapters, as `ip -br link` shows them")
    if found.fabric not in ("efa", "infiniband"):
        yield unknown(f"{RDMA}.gid_index", why, "that of RoCE v2 (`show_gids`); NCCL from 2.21 on finds it")
    yield unknown(f"{RDMA}.gdr_level", why, "by `nvidia-smi topo -m`; left out, NCCL chooses")


def networks(facts: Facts) -> list[Network]:
    return sorted((_network(each) for each in facts.attachments.value), key=lambda each: each.name)


def _unread(facts: Facts) -> tuple[str, ...]:
    """Why attachments are not known."""
    if not facts.multus:
        return ("The cluster has no network attachments (k8s.cni.cncf.io is not served).",)
    why = facts.attachments.why
    return (f"Network attachments of {facts.namespace} may not be read: {why}.",) if why else ()


def _adapters(fleet: Fleet) -> dict[str, int]:
    """Resources that may be adapters, and how many of each every node of the draft has."""
    if fleet.chosen is None:
        return {}
    nodes = fleet.chosen.nodes
    names = sorted({name for each in nodes for name in allocatable(each) if _may_be_adapter(name)})
    return {name: int(count) for name in names if (count := least(nodes, name)) >= 1}


def _may_be_adapter(name: str) -> bool:
    """GPUs go by such names, too: whole ones, parts of them, and those that KubeVirt passes on (in capitals)."""
    if name.startswith((GPU, MIG, "nvidia.com/pgpu")) or name.rpartition("/")[2][:1].isupper():
        return False
    return name == EFA or name.startswith(PREFIXES)


def _network(found: Object) -> Network:
    meta = found["metadata"]
    resource = (meta.get("annotations") or {}).get(ANNOTATION) or ""
    return Network(str(meta["name"]), str(resource), _plugin((found.get("spec") or {}).get("config")))


def _plugin(config: object) -> str:
    """The type of a CNI configuration, or of the first plugin of a list."""
    try:
        found = json.loads(str(config))
        first = found["plugins"][0] if found.get("plugins") else found
        return str(first.get("type") or "")
    except (ValueError, AttributeError, KeyError, IndexError, TypeError):
        return ""


def _fabric(found: Network) -> str:
    return FABRICS.get(found.plugin, "")
