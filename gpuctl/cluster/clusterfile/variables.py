"""The NCCL and related variables of a pod, each with its reason: derived from fields, or added by the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuctl.cluster.clusterfile.model import Cluster

Row = tuple[str, str, str, str]  # variable, value, the field that sets it, the reason


@dataclass(frozen=True)
class Variable:
    """One variable; `field` is the cluster file's field that sets it."""

    name: str
    value: str
    field: str
    why: str


def all_of(cluster: Cluster, mode: str) -> tuple[Variable, ...]:
    """Return every variable of a pod in this mode, sorted by name."""
    network = cluster.network.rdma if mode == "rdma" else cluster.network.tcp
    field = f"network.{mode}.environment"
    added = [
        Variable(name, value, field, f"The cluster file sets it: {field}.")
        for name, value in network.environment.items()
    ]
    return tuple(sorted([*derived(cluster, mode), *added], key=lambda variable: variable.name))


def derived(cluster: Cluster, mode: str) -> list[Variable]:
    """Return the variables derived from other fields."""
    chosen = _rdma(cluster) if mode == "rdma" else _tcp(cluster)
    return [Variable(*row) for row in (*_both(cluster), *chosen)]


def _both(cluster: Cluster) -> Iterator[Row]:
    yield "NCCL_DEBUG", cluster.nccl.debug, "nccl.debug", "The log level of NCCL; INFO shows which adapters it uses."


def _tcp(cluster: Cluster) -> Iterator[Row]:
    network = cluster.network.tcp
    yield "NCCL_IB_DISABLE", "1", "the mode", "TCP mode: NCCL does not look for adapters."
    yield "NCCL_NET", "Socket", "the mode", "TCP mode: no network plugin of the image is used."
    yield _excluded(cluster)
    if network.p2p_level:
        why = "The maximum distance of two GPUs for direct transfers."
        yield "NCCL_P2P_LEVEL", network.p2p_level, "network.tcp.p2p_level", why


def _rdma(cluster: Cluster) -> Iterator[Row]:
    network = cluster.network.rdma
    names = network.interfaces or tuple(f"net{number}" for number, _ in enumerate(network.attachments, 1))
    if names:
        why = "NCCL's bootstrap uses these interfaces; = matches names exactly."
        yield "NCCL_SOCKET_IFNAME", f"={','.join(names)}", "network.rdma.interfaces", why
    else:
        yield _excluded(cluster)
    if network.devices and network.fabric != "efa":
        why = "Only these adapters are used; = matches names exactly: mlx5_1 alone would also match mlx5_10."
        yield "NCCL_IB_HCA", f"={','.join(network.devices)}", "network.rdma.devices", why
    yield from _tuned(cluster)


def _tuned(cluster: Cluster) -> Iterator[Row]:
    """Yield the tuning variables that the cluster file sets; no defaults."""
    network = cluster.network.rdma
    if network.gid_index is not None and network.fabric != "efa":
        why = "The RoCE GID index; NCCL before 2.21 does not detect it."
        yield "NCCL_IB_GID_INDEX", str(network.gid_index), "network.rdma.gid_index", why
    if network.gdr_level:
        why = "The maximum distance of GPU and adapter for GPUDirect RDMA."
        yield "NCCL_NET_GDR_LEVEL", network.gdr_level, "network.rdma.gdr_level", why
    if network.cross_nic is not None:
        why = "0 uses the same adapter at both ends, which separate subnets require; 1 and 2 allow others."
        yield "NCCL_CROSS_NIC", str(network.cross_nic), "network.rdma.cross_nic", why
    if network.dmabuf is not None:
        why = "GPUDirect RDMA by DMA-BUF, which does not need nvidia_peermem on the node."
        yield "NCCL_DMABUF_ENABLE", str(int(network.dmabuf)), "network.rdma.dmabuf", why


def _excluded(cluster: Cluster) -> Row:
    names = ",".join(cluster.network.tcp.interface_exclude)
    why = "NCCL's bootstrap uses all other interfaces; container bridges reach no other node."
    return "NCCL_SOCKET_IFNAME", f"^{names}", "network.tcp.interface_exclude", why
