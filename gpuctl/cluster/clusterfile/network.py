"""The cluster file's section on networks: RDMA and TCP."""

# ruff: noqa: RUF009 - `part` gives a dataclass field, which is what may stand there
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuctl.cluster.clusterfile.fields import holds, part
from gpuctl.cluster.clusterfile.patterns import (
    ATTACHMENT,
    DEVICE,
    ENVIRONMENT,
    FIELD,
    GUIDE,
    INTERFACE,
    LEVELS,
    RESOURCE,
)
from gpuctl.core.strict_yaml import Choice, Flag, ListOf, MappingOf, Whole

CONFIG = "EldritchJS/ml-dev-env, claude_guidance/nccl-configuration-h100-cluster.md"


@dataclass(frozen=True)
class Rdma:
    """How pods reach each other's GPUs without their CPUs."""

    enabled: bool = holds(Flag(), "Whether the cluster has RDMA for pods.", default=False, source=FIELD)
    fabric: str = holds(Choice(("roce", "infiniband", "efa")), "What the adapters speak.", default="")
    resources: Mapping[str, int] = holds(
        MappingOf(RESOURCE, Whole(1, 64)),
        "What a pod asks for to get the adapters, as their device plugin calls it, and how many.",
        default={},
        source="aws efa-k8s-device-plugin; sriov-network-device-plugin",
        unit="a pod",
    )
    attachments: tuple[str, ...] = holds(
        ListOf(ATTACHMENT, "network attachments", unique=True),
        "Networks that Multus brings into the pods, as net1 and so on.",
        default=(),
        source="EldritchJS/ml-dev-env, k8s/network-attachments",
    )
    devices: tuple[str, ...] = holds(
        ListOf(DEVICE, "RDMA devices", unique=True),
        "The adapters by their exact names (NCCL_IB_HCA). [NCCL looks for them]",
        default=(),
        source=f"{FIELD}; {GUIDE}",
    )
    interfaces: tuple[str, ...] = holds(
        ListOf(INTERFACE, "interfaces", unique=True),
        "The interfaces that ranks find each other on (NCCL_SOCKET_IFNAME). [net1, … of the attachments]",
        default=(),
        source=f"{FIELD}; {GUIDE}",
    )
    gid_index: int | None = holds(
        Whole(0, 255),
        "The RoCE address to use (NCCL_IB_GID_INDEX); NCCL before 2.21 has to be told. [NCCL chooses]",
        default=None,
        source=f"{FIELD}; {GUIDE}",
    )
    gdr_level: str = holds(
        Choice(LEVELS),
        "How far apart GPU and adapter may be for GPUDirect RDMA (NCCL_NET_GDR_LEVEL). [NCCL chooses]",
        default="",
        source=f"{FIELD}; {GUIDE}",
    )
    cross_nic: int | None = holds(
        Whole(0, 2),
        "Whether traffic may change adapters between nodes (NCCL_CROSS_NIC); 0 where adapters are on subnets apart. "
        "[NCCL chooses]",
        default=None,
        source=CONFIG,
    )
    dmabuf: bool | None = holds(
        Flag(),
        "GPUDirect RDMA by DMA-BUF (NCCL_DMABUF_ENABLE), which needs no nvidia_peermem. [NCCL chooses]",
        default=None,
        source=f"{CONFIG}: 35 -> 194 GB/s with it",
    )
    host_network: bool = holds(
        Flag(), "Pods in the node's own network, where adapters cannot be brought into theirs.", default=False
    )
    environment: Mapping[str, str] = holds(
        ENVIRONMENT, "More variables of pods in RDMA mode.", default={}, source=GUIDE
    )


@dataclass(frozen=True)
class Tcp:
    """How pods reach each other without RDMA."""

    interface_exclude: tuple[str, ...] = holds(
        ListOf(INTERFACE, "interfaces", unique=True),
        "Interfaces whose names start so are not used (NCCL_SOCKET_IFNAME=^…), in both modes.",
        default=("lo", "docker0"),
        source=f"{FIELD}; {GUIDE}",
    )
    p2p_level: str = holds(
        Choice(("LOC", "NVL", *LEVELS[1:])),
        "How far apart two GPUs of a node may be to talk directly (NCCL_P2P_LEVEL). [NCCL chooses]",
        default="",
        source=f"{FIELD}; {GUIDE}",
    )
    environment: Mapping[str, str] = holds(ENVIRONMENT, "More variables of pods in TCP mode.", default={}, source=GUIDE)


@dataclass(frozen=True)
class Network:
    """Both ways from pod to pod."""

    rdma: Rdma = part(Rdma, "RDMA, where the cluster has it.", optional=True)
    tcp: Tcp = part(Tcp, "Sockets, which every cluster has.", optional=True)
