"""Group a cluster's GPU nodes by what they have, and compute what fits on the smallest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gpuctl.cluster.deploy.checks.nodes import away, name_of, requested
from gpuctl.cluster.environment import Object
from gpuctl.domain.quantity import amount

GPU = "nvidia.com/gpu"
# Labels of NVIDIA's GPU feature discovery (NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery).
PRODUCT, COUNT, REPLICAS = (f"nvidia.com/gpu.{word}" for word in ("product", "count", "replicas"))
MIG = "nvidia.com/mig-"
INSTANCE = "node.kubernetes.io/instance-type"
GIB = 2**30


@dataclass(frozen=True)
class Group:
    """Identical nodes: the number of GPUs, and their product (empty without a label)."""

    gpus: int
    product: str
    nodes: tuple[Object, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name_of(node) for node in self.nodes)

    @property
    def description(self) -> str:
        """Such as "8 NVIDIA-H100-80GB-HBM3"."""
        return f"{self.gpus} {self.product or 'GPUs of an unknown type'}"


@dataclass(frozen=True)
class Fleet:
    """`groups`: largest first; `out`: unusable GPU nodes, with the reason."""

    groups: tuple[Group, ...] = ()
    out: Mapping[str, str] = field(default_factory=dict)

    @property
    def chosen(self) -> Group | None:
        return self.groups[0] if self.groups else None


@dataclass(frozen=True)
class Room:
    """Resources for one pod on each of some nodes: an even number of cores, bytes of memory."""

    cores: int
    memory: int


def fleet(nodes: Iterable[Object]) -> Fleet:
    """Group GPU nodes: most nodes first, then most GPUs."""
    groups: dict[tuple[int, str], list[Object]] = {}
    out = {}
    for node in sorted(nodes, key=name_of):
        why = _unfit(node)
        if why:
            out[name_of(node)] = why
        elif count := _count(node):
            groups.setdefault((count, labels(node).get(PRODUCT, "")), []).append(node)
    found_groups = [Group(count, product, tuple(members)) for (count, product), members in groups.items()]
    found_groups.sort(key=lambda group: (-len(group.nodes), -group.gpus, group.product))
    return Fleet(tuple(found_groups), out)


def labels(node: Object) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def allocatable(node: Object) -> Mapping[str, str]:
    return (node.get("status") or {}).get("allocatable") or {}


def _offered(node: Object) -> int:
    return int(amount(allocatable(node).get(GPU, "0")) or 0)


def _count(node: Object) -> int:
    """Count GPUs by the label, which is stable while a GPU is missing; else by what the node offers."""
    label = labels(node).get(COUNT, "")
    return int(label) if label.isdecimal() else _offered(node)


def _unfit(node: Object) -> str:
    """Return why a GPU node has no whole GPUs for us; empty if it has, or is no GPU node."""
    offered, counted = _offered(node), _count(node)
    cut = [name for name, count in allocatable(node).items() if name.startswith(MIG) and amount(count)]
    if cut or "-MIG-" in labels(node).get(PRODUCT, ""):
        return f"its GPUs are partitioned by MIG ({', '.join(sorted(cut)) or labels(node)[PRODUCT]})"
    if counted and offered > counted:
        return f"its {counted} GPUs are shared: it offers {offered} ({REPLICAS})"
    if offered < counted:
        return f"it offers {offered} of its {counted} GPUs ({GPU})"
    return away(node) if counted else ""


# ---- sizes ----------------------------------------------------------------------------------------------------------


def room(nodes: Sequence[Object], pods: Iterable[Object]) -> Room:
    """Return nine tenths of the smallest node's allocatable resources, minus the requests of its daemons."""
    daemons = [pod for pod in pods if _is_daemon(pod)]
    cores = min(_left(node, daemons, "cpu") for node in nodes)
    memory = min(_left(node, daemons, "memory") for node in nodes)
    return Room(max(0, int(cores * 9 / 10)) // 2 * 2, max(0, int(memory * 9 / 10)) // GIB * GIB)


def _left(node: Object, daemons: Iterable[Object], name: str) -> Decimal:
    on_node = (pod for pod in daemons if pod["spec"].get("nodeName") == name_of(node))
    return (amount(allocatable(node).get(name, "0")) or Decimal(0)) - sum(requested(pod, name) for pod in on_node)


def _is_daemon(pod: Object) -> bool:
    """Return True for pods of a DaemonSet or of the node itself, which stay on their node."""
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in pod["metadata"].get("ownerReferences") or [])


def least(nodes: Sequence[Object], name: str) -> Decimal:
    """Return the smallest amount of a resource among the nodes."""
    return min(amount(allocatable(node).get(name, "0")) or Decimal(0) for node in nodes)
