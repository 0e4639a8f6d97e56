"""Model of a machine, from which the files of /proc and /sys are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GPU, ETHERNET, INFINIBAND, NVME, BRIDGE = "0x030200", "0x020000", "0x020700", "0x010802", "0x060400"


@dataclass(frozen=True)
class Cpu:
    """A logical processor and where it sits."""

    number: int
    core: int
    package: int
    node: int


@dataclass(frozen=True)
class Idle:
    """A state a processor sleeps in, and how long it takes to wake up."""

    name: str
    latency_us: int


@dataclass(frozen=True)
class Gpu:
    """What the NVIDIA driver says of a GPU beyond its PCI entry."""

    model: str
    uuid: str
    minor: int


@dataclass(frozen=True)
class Device:
    """A PCI device; `node` is -1 where the firmware does not say; `managed` interrupts cannot be moved by anyone."""

    address: str
    pci_class: str
    vendor: str
    device: str
    node: int
    driver: str = ""
    vectors: int = 0
    managed: bool = False
    gpu: Gpu | None = None
    net: str = ""
    rdma: str = ""
    block: str = ""


@dataclass(frozen=True)
class Frequency:
    """How the clock of the processors is governed; `boost` is the file that says whether turbo may be used."""

    driver: str
    governor: str
    governors: Sequence[str]
    boost: str
    preference: str = ""


@dataclass(frozen=True)
class Swap:
    path: str
    size_kib: int
    used_kib: int = 0


@dataclass(frozen=True)
class Machine:
    """A whole machine as it is when it has started and nobody has tuned it."""

    name: str
    vendor: str
    product: str
    cpu_model: str
    cpus: Sequence[Cpu]
    memory_kib: Mapping[int, int]
    distances: Mapping[int, Sequence[int]]
    devices: Sequence[Device]
    virtual: bool = False
    frequency: Frequency | None = None
    energy_bias: int | None = None
    idle_driver: str = "none"
    idle: Sequence[Idle] = ()
    thp: str = "always [madvise] never"
    swaps: Sequence[Swap] = ()
    disks: Sequence[str] = ("sda",)
    cmdline: str = "BOOT_IMAGE=/boot/vmlinuz-6.1.0-25-amd64 root=/dev/sda1 ro console=tty0 console=ttyS0,115200n8"


def two_threads_a_core(cores: int, nodes: int, threads: int = 2) -> list[Cpu]:
    """The usual numbering: first thread of every core, node by node, then the second threads; a socket is a node."""
    each = cores // nodes
    return [Cpu(t * cores + c, c % each, c // each, c // each) for t in range(threads) for c in range(cores)]
