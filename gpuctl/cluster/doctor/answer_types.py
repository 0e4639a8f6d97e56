"""Types of the answer of the doctor's probe (pod/main.py); every answer is held against them."""

from __future__ import annotations

from typing import Literal, TypedDict

from gpuctl.engine import bounds, fact_types


class Rank(TypedDict):
    """See pod/jobs.py."""

    rank: bounds.Count
    pid: bounds.Count
    name: str
    state: str
    wait: str
    still: bool
    helpers: int
    world: bounds.Count | None
    variables: dict[str, str]
    memlock: str | None
    age_s: bounds.Count | None


class Jobs(TypedDict):
    """See pod/jobs.py."""

    ranks: list[Rank]
    hidden: bounds.Count
    age_s: bounds.Count | None


class LogFile(TypedDict):
    """See pod/nccl_logs.py."""

    live: bool
    age_s: bounds.Amount | None
    lines: list[str]


class NcclLogs(TypedDict):
    """See pod/nccl_logs.py."""

    files: list[LogFile]


class Smi(TypedDict):
    """See pod/gpus.py."""

    xml: str
    error: str
    missing: bool
    late: bool
    open_module: bool | None


class Interface(TypedDict):
    """A network interface."""

    state: str | None
    mtu: bounds.Count | None


class Network(TypedDict):
    """See pod/network.py."""

    interfaces: dict[str, Interface]
    names: dict[str, list[str] | str]
    ssh: dict[str, str]
    master: str | None
    hostfile: str | None


class Machine(TypedDict):
    """See pod/machine.py."""

    files: dict[str, str | None]
    cpu_used: float | None
    throttled: float | None
    node_busy: float | None
    swapped: int | None
    cpus: bounds.Count | None
    pressure: dict[str, str | None]
    pod_pressure: dict[str, str | None]
    allowed: bounds.CpuList
    nodes: dict[bounds.Digits, bounds.CpuList]
    gpu_nodes: list[int]
    memlock: str | None
    capabilities: str | None


class Folder(TypedDict):
    """Space of a folder, and its mount."""

    size: bounds.Count
    free: bounds.Count
    inodes: bounds.Count
    inodes_free: bounds.Count
    type: str
    source: str


class LateFolder(TypedDict):
    """A folder that did not answer within these seconds."""

    late: bounds.Amount
    type: str
    source: str


class MissingFolder(TypedDict):
    """A folder that does not exist."""

    missing: Literal[True]


class UnreadableFolder(TypedDict):
    """Why a folder cannot be read."""

    why: str


class PodAnswer(TypedDict):
    """All subjects of a pod."""

    jobs: Jobs | fact_types.UnreadSubject
    nccl_logs: NcclLogs | fact_types.UnreadSubject
    variables: fact_types.UnreadSubject | dict[str, str]
    gpu: Smi | fact_types.UnreadSubject
    rdma: fact_types.RdmaFacts | fact_types.UnreadSubject
    peer_memory: fact_types.PeerMemoryFacts | fact_types.UnreadSubject
    network: Network | fact_types.UnreadSubject
    machine: Machine | fact_types.UnreadSubject
    storage_load: fact_types.StorageLoadFacts | fact_types.UnreadSubject
    disk: fact_types.UnreadSubject | dict[str, Folder | LateFolder | MissingFolder | UnreadableFolder]
