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
    comments = tuple(f"Each of the nodes has {count} {name} (allocatable)." for name, count in has.items())
    comments += tuple(f"Network attachment {attachment.words}." for attachment in networks(facts))
    if count := has.get(EFA):
        return Rdma({EFA: count}, (), "efa", comments)
    chosen = tuple(attachment for attachment in networks(facts) if attachment.resource in has)
    if chosen:
        fabrics = {_fabric(attachment) for attachment in chosen}
        fabric = fabrics.pop() if len(fabrics) == 1 else ""
        return Rdma(dict.fromkeys((attachment.resource for attachment in chosen), 1), chosen, fabric, comments)
    return Rdma(dict.fromkeys(has, 1), (), "", comments)


def network(facts: Facts, fleet: Fleet, rdma_setup: Rdma) -> Iterator[Line]:
    yield Line(RDMA, None, (*rdma_setup.said, *_unread(facts)))
    yield from _rdma(facts, fleet, rdma_setup)
    why = "the API does not tell the interfaces of nodes"
    yield unknown("network.tcp.interface_exclude", why, "those that reach no other node; left out: lo, docker0")


def _rdma(facts: Facts, fleet: Fleet, rdma_setup: Rdma) -> Iterator[Line]:
    if facts.nodes.why or fleet.chosen is None:
        why = f"nodes may not be read ({facts.nodes.why})" if facts.nodes.why else "there is no GPU node to look at"
        fill = "true, with fabric and resources, where GPU nodes have adapters for pods; left out: TCP"
        yield unknown(f"{RDMA}.enabled", why, fill)
        return
    if not rdma_setup.resources:
        kinds = ", ".join((EFA, *(f"{prefix}*" for prefix in PREFIXES)))
        yield known(
            f"{RDMA}.enabled", False, f"None of the resources that bring adapters into pods is on all nodes: {kinds}."
        )
        return
    yield known(f"{RDMA}.enabled", True, "The nodes have resources that bring adapters into pods.")
    yield _fabric_line(rdma_setup)
    yield known(f"{RDMA}.resources", dict(rdma_setup.resources), _how_many(rdma_setup))
    yield from _attachments(facts, rdma_setup)
    yield from _inside(rdma_setup)


def _fabric_line(rdma_setup: Rdma) -> Line:
    path = f"{RDMA}.fabric"
    if rdma_setup.fabric == "efa":
        return known(path, "efa", f"The resource {EFA}.")
    if rdma_setup.fabric:
        plugins = ", ".join(sorted({attachment.plugin for attachment in rdma_setup.networks}))
        return known(path, rdma_setup.fabric, f"The plugin of the attachments ({plugins}) is for it.")
    why = "neither resources nor attachments tell what the adapters speak"
    return unknown(path, why, "roce or infiniband: `rdma link` or `ibv_devinfo` on a node tells it", needed=True)


def _how_many(rdma_setup: Rdma) -> str:
    if rdma_setup.fabric == "efa":
        return "All that each of the nodes has."
    whether = "Whether they do RDMA (isRdma of a SriovNetworkNodePolicy) nodes do not tell."
    return f"One of each a pod; how many a pod can have beside others' is for their admin to say. {whether}"


def _attachments(facts: Facts, rdma_setup: Rdma) -> Iterator[Line]:
    path = f"{RDMA}.attachments"
    if rdma_setup.fabric == "efa":
        return
    if len(set(rdma_setup.networks)) > len({attachment.resource for attachment in rdma_setup.networks}):
        names = ", ".join(attachment.words for attachment in rdma_setup.networks)
        yield unknown(path, f"several networks are of one resource: {names}", "one for each adapter, in their order")
    elif rdma_setup.networks:
        yield known(
            path, tuple(attachment.name for attachment in rdma_setup.networks), "Those whose resource the nodes have."
        )
    else:
        why = _unread(facts) or (f"no attachment in {facts.namespace} names one of these resources ({ANNOTATION})",)
        yield unknown(path, why[0].rstrip("."), "the networks of the adapters, or `host_network: true`")


def _inside(rdma_setup: Rdma) -> Iterator[Line]:
    """What only a look into a node or pod tells."""
    why = "it takes a look into a node or a pod, which the API does not give"
    if rdma_setup.fabric != "efa":
        yield unknown(f"{RDMA}.devices", why, "names as `rdma link` in a pod shows them; left out, NCCL looks for them")
        if not rdma_setup.networks:
            yield unknown(f"{RDMA}.interfaces", why, "those of the adapters, as `ip -br link` shows them")
    if rdma_setup.fabric not in ("efa", "infiniband"):
        yield unknown(f"{RDMA}.gid_index", why, "that of RoCE v2 (`show_gids`); NCCL from 2.21 on finds it")
    yield unknown(f"{RDMA}.gdr_level", why, "by `nvidia-smi topo -m`; left out, NCCL chooses")


def networks(facts: Facts) -> list[Network]:
    return sorted(
        (_network(definition) for definition in facts.attachments.value), key=lambda attachment: attachment.name
    )


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
    names = sorted({name for node in nodes for name in allocatable(node) if _may_be_adapter(name)})
    return {name: int(count) for name in names if (count := least(nodes, name)) >= 1}


def _may_be_adapter(name: str) -> bool:
    """GPUs go by such names, too: whole ones, parts of them, and those that KubeVirt passes on (in capitals)."""
    if name.startswith((GPU, MIG, "nvidia.com/pgpu")) or name.rpartition("/")[2][:1].isupper():
        return False
    return name == EFA or name.startswith(PREFIXES)


def _network(definition: Object) -> Network:
    meta = definition["metadata"]
    resource = (meta.get("annotations") or {}).get(ANNOTATION) or ""
    return Network(str(meta["name"]), str(resource), _plugin((definition.get("spec") or {}).get("config")))


def _plugin(config: object) -> str:
    """The type of a CNI configuration, or of the first plugin of a list."""
    try:
        parsed = json.loads(str(config))
        first = parsed["plugins"][0] if parsed.get("plugins") else parsed
        return str(first.get("type") or "")
    except (ValueError, AttributeError, KeyError, IndexError, TypeError):
        return ""


def _fabric(attachment: Network) -> str:
    return FABRICS.get(attachment.plugin, "")
