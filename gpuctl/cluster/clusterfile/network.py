"""The cluster file's section on networks: RDMA and TCP."""

# ruff: noqa: RUF009 - `part` returns a dataclass field
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
    """RDMA between pods."""

    enabled: bool = holds(Flag(), "True if the cluster supports RDMA in pods.", default=False, source=FIELD)
    fabric: str = holds(Choice(("roce", "infiniband", "efa")), "The fabric of the adapters.", default="")
    resources: Mapping[str, int] = holds(
        MappingOf(RESOURCE, Whole(1, 64)),
        "The adapters that a pod requests, by the resource names of their device plugin, with the number of each.",
        default={},
        source="aws efa-k8s-device-plugin; sriov-network-device-plugin",
        unit="per pod",
    )
    attachments: tuple[str, ...] = holds(
        ListOf(ATTACHMENT, "network attachments", unique=True),
        "Networks that Multus attaches to the pods, as net1 and so on.",
        default=(),
        source="EldritchJS/ml-dev-env, k8s/network-attachments",
    )
    devices: tuple[str, ...] = holds(
        ListOf(DEVICE, "RDMA devices", unique=True),
        "The adapters by exact name (NCCL_IB_HCA). [NCCL detects them]",
        default=(),
        source=f"{FIELD}; {GUIDE}",
    )
    interfaces: tuple[str, ...] = holds(
        ListOf(INTERFACE, "interfaces", unique=True),
        "The interfaces for NCCL's bootstrap (NCCL_SOCKET_IFNAME). [net1, … of the attachments]",
        default=(),
        source=f"{FIELD}; {GUIDE}",
    )
    gid_index: int | None = holds(
        Whole(0, 255),
        "The RoCE GID index (NCCL_IB_GID_INDEX); required by NCCL before 2.21. [NCCL chooses]",
        default=None,
        source=f"{FIELD}; {GUIDE}",
    )
    gdr_level: str = holds(
        Choice(LEVELS),
        "The maximum distance of GPU and adapter for GPUDirect RDMA (NCCL_NET_GDR_LEVEL). [NCCL chooses]",
        default="",
        source=f"{FIELD}; {GUIDE}",
    )
    cross_nic: int | None = holds(
        Whole(0, 2),
        "Use of different adapters at both ends (NCCL_CROSS_NIC); 0 if adapters are on separate subnets. "
        "[NCCL chooses]",
        default=None,
        source=CONFIG,
    )
    dmabuf: bool | None = holds(
        Flag(),
        "GPUDirect RDMA by DMA-BUF (NCCL_DMABUF_ENABLE), which does not need nvidia_peermem. [NCCL chooses]",
        default=None,
        source=f"{CONFIG}: 35 -> 194 GB/s with it",
    )
    host_network: bool = holds(Flag(), "Use the host network, if adapters cannot be attached to pods.", default=False)
    environment: Mapping[str, str] = holds(
        ENVIRONMENT, "Additional environment variables in RDMA mode.", default={}, source=GUIDE
    )


@dataclass(frozen=True)
class Tcp:
    """TCP between pods, without RDMA."""

    interface_exclude: tuple[str, ...] = holds(
        ListOf(INTERFACE, "interfaces", unique=True),
        "Prefixes of interfaces that are not used (NCCL_SOCKET_IFNAME=^…), in both modes.",
        default=("lo", "docker0"),
        source=f"{FIELD}; {GUIDE}",
    )
    p2p_level: str = holds(
        Choice(("LOC", "NVL", *LEVELS[1:])),
        "The maximum distance of two GPUs for direct transfers (NCCL_P2P_LEVEL). [NCCL chooses]",
        default="",
        source=f"{FIELD}; {GUIDE}",
    )
    environment: Mapping[str, str] = holds(
        ENVIRONMENT, "Additional environment variables in TCP mode.", default={}, source=GUIDE
    )


@dataclass(frozen=True)
class Network:
    """The network between pods, for both modes."""

    rdma: Rdma = part(Rdma, "RDMA, if the cluster supports it.", optional=True)
    tcp: Tcp = part(Tcp, "TCP sockets, which work on every cluster.", optional=True)
