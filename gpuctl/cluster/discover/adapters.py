"""The draft's section on networks: RDMA, derived from nodes and network attachments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuctl.cluster.discover.draft_yaml import UNKNOWN, Line, known, unknown
from gpuctl.cluster.discover.facts import Facts
from gpuctl.cluster.discover.fleet import GPU, MIG, Fleet, allocatable, least
from gpuctl.cluster.environment import Object
from gpuctl.engine import typed_json

RDMA = "network.rdma"
EFA = "vpc.amazonaws.com/efa"  # aws/eks-charts, aws-efa-k8s-device-plugin
# Prefixes of k8snetworkplumbingwg's device plugins: shared RDMA devices, and SR-IOV as OpenShift and NVIDIA set it up.
PREFIXES = ("rdma/", "openshift.io/", "nvidia.com/")
ANNOTATION = "k8s.v1.cni.cncf.io/resourceName"
# Fabrics by CNI plugin: sriov-cni and macvlan are for Ethernet, ib-sriov-cni and ipoib-cni for InfiniBand.
FABRICS = {"sriov": "roce", "macvlan": "roce", "ib-sriov": "infiniband", "ipoib": "infiniband"}


@dataclass(frozen=True)
class Network:
    """A NetworkAttachmentDefinition; `resource` and `plugin` are empty if it does not name them."""

    name: str
    resource: str
    plugin: str

    @property
    def description(self) -> str:
        return f"{self.name} (plugin {self.plugin or UNKNOWN}, {self.resource or 'without a resource'})"


@dataclass(frozen=True)
class Rdma:
    """RDMA of a cluster: resources with the number a pod requests, and their networks."""

    resources: Mapping[str, int] = field(default_factory=dict)
    networks: tuple[Network, ...] = ()
    fabric: str = ""
    comments: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.resources)


def rdma(facts: Facts, fleet: Fleet) -> Rdma:
    """Return the RDMA setup that every node of the draft has."""
    has = _adapters(fleet)
    comments = tuple(f"Each of the nodes has {count} {name} (allocatable)." for name, count in has.items())
    comments += tuple(f"Network attachment {attachment.description}." for attachment in networks(facts))
    if count := has.get(EFA):
        return Rdma({EFA: count}, (), "efa", comments)
    chosen = tuple(attachment for attachment in networks(facts) if attachment.resource in has)
    if chosen:
        fabrics = {_fabric(attachment) for attachment in chosen}
        fabric = fabrics.pop() if len(fabrics) == 1 else ""
        return Rdma(dict.fromkeys((attachment.resource for attachment in chosen), 1), chosen, fabric, comments)
    return Rdma(dict.fromkeys(has, 1), (), "", comments)


def network(facts: Facts, fleet: Fleet, rdma_setup: Rdma) -> Iterator[Line]:
    yield Line(RDMA, None, (*rdma_setup.comments, *_unread(facts)))
    yield from _rdma(facts, fleet, rdma_setup)
    why = "the API does not report the interfaces of nodes"
    yield unknown(
        "network.tcp.interface_exclude", why, "interfaces that do not reach other nodes; default: lo, docker0"
    )


def _rdma(facts: Facts, fleet: Fleet, rdma_setup: Rdma) -> Iterator[Line]:
    if facts.nodes.why or fleet.chosen is None:
        why = f"nodes cannot be read ({facts.nodes.why})" if facts.nodes.why else "there is no GPU node"
        fill = "true, with fabric and resources, if GPU nodes have adapters for pods; default: TCP"
        yield unknown(f"{RDMA}.enabled", why, fill)
        return
    if not rdma_setup.resources:
        kinds = ", ".join((EFA, *(f"{prefix}*" for prefix in PREFIXES)))
        yield known(f"{RDMA}.enabled", False, f"No resource for adapters is on all nodes: {kinds}.")
        return
    yield known(f"{RDMA}.enabled", True, "The nodes have resources for RDMA adapters.")
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
        return known(path, rdma_setup.fabric, f"From the plugin of the attachments ({plugins}).")
    why = "neither resources nor attachments show the adapters' fabric"
    return unknown(path, why, "roce or infiniband: `rdma link` or `ibv_devinfo` on a node shows it", needed=True)


def _how_many(rdma_setup: Rdma) -> str:
    if rdma_setup.fabric == "efa":
        return "All adapters of a node."
    whether = "Nodes do not report whether they support RDMA (isRdma of a SriovNetworkNodePolicy)."
    return f"One of each per pod; ask the cluster's admin how many a pod may take. {whether}"


def _attachments(facts: Facts, rdma_setup: Rdma) -> Iterator[Line]:
    path = f"{RDMA}.attachments"
    if rdma_setup.fabric == "efa":
        return
    if len(set(rdma_setup.networks)) > len({attachment.resource for attachment in rdma_setup.networks}):
        names = ", ".join(attachment.description for attachment in rdma_setup.networks)
        yield unknown(path, f"several networks use one resource: {names}", "one per adapter, in their order")
    elif rdma_setup.networks:
        yield known(
            path,
            tuple(attachment.name for attachment in rdma_setup.networks),
            "Networks whose resource the nodes have.",
        )
    else:
        why = _unread(facts) or (f"no attachment in {facts.namespace} names one of these resources ({ANNOTATION})",)
        yield unknown(path, why[0].rstrip("."), "the networks of the adapters, or `host_network: true`")


def _inside(rdma_setup: Rdma) -> Iterator[Line]:
    """Yield the fields that can only be read on a node or in a pod."""
    why = "it can only be read on a node or in a pod"
    if rdma_setup.fabric != "efa":
        yield unknown(f"{RDMA}.devices", why, "names as shown by `rdma link` in a pod; default: NCCL detects them")
        if not rdma_setup.networks:
            yield unknown(f"{RDMA}.interfaces", why, "interfaces of the adapters, as shown by `ip -br link`")
    if rdma_setup.fabric not in ("efa", "infiniband"):
        yield unknown(f"{RDMA}.gid_index", why, "the index of RoCE v2 (`show_gids`); NCCL 2.21 and newer detect it")
    yield unknown(f"{RDMA}.gdr_level", why, "from `nvidia-smi topo -m`; default: NCCL chooses")


def networks(facts: Facts) -> list[Network]:
    return sorted(
        (_network(definition) for definition in facts.attachments.value), key=lambda attachment: attachment.name
    )


def _unread(facts: Facts) -> tuple[str, ...]:
    """Return why attachments are unknown."""
    if not facts.multus:
        return ("The cluster has no network attachments (k8s.cni.cncf.io is not served).",)
    why = facts.attachments.why
    return (f"Network attachments of {facts.namespace} cannot be read: {why}.",) if why else ()


def _adapters(fleet: Fleet) -> dict[str, int]:
    """Return the resources that may be adapters, with the number that every node of the draft has."""
    if fleet.chosen is None:
        return {}
    nodes = fleet.chosen.nodes
    names = sorted({name for node in nodes for name in allocatable(node) if _may_be_adapter(name)})
    return {name: int(count) for name in names if (count := least(nodes, name)) >= 1}


def _may_be_adapter(name: str) -> bool:
    """Exclude GPUs with similar names: whole ones, MIG slices, and KubeVirt's passthrough devices (in capitals)."""
    if name.startswith((GPU, MIG, "nvidia.com/pgpu")) or name.rpartition("/")[2][:1].isupper():
        return False
    return name == EFA or name.startswith(PREFIXES)


def _network(definition: Object) -> Network:
    meta = definition["metadata"]
    resource = (meta.get("annotations") or {}).get(ANNOTATION) or ""
    return Network(str(meta["name"]), str(resource), _plugin((definition.get("spec") or {}).get("config")))


def _plugin(config: object) -> str:
    """Return the type of a CNI configuration, or of the first plugin in a list."""
    try:
        parsed = typed_json.parse(str(config))
        first = parsed["plugins"][0] if parsed.get("plugins") else parsed
        return str(first.get("type") or "")
    except (ValueError, AttributeError, KeyError, IndexError, TypeError):
        return ""


def _fabric(attachment: Network) -> str:
    return FABRICS.get(attachment.plugin, "")
