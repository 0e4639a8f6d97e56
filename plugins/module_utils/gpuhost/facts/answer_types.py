"""Types of the facts that a host answers; the controller holds every answer against them.

None: could not be read, and then `unread` has the reason under the name of the value. A host imports none of this.
"""

from __future__ import annotations

from ipaddress import ip_interface
from typing import Annotated, TypedDict

from ..bounds import Amount, Count, Parsed, Unlimited

WithPrefix = Annotated[str, Parsed(ip_interface, "an address with its prefix")]
Reasons = dict[str, str]
Unread = TypedDict("Unread", {"*": str})  # the reason for a whole subject


class UnreadSubject(TypedDict):
    """A subject of which nothing could be read."""

    unread: Unread


class Machine(TypedDict):
    """See `machine.Machine`."""

    machine: str
    distribution: str
    family: str
    version: str
    arch: str
    vendor: str
    gpus: list[str]
    nics: list[str]
    memory: str


class GpuProcess(TypedDict):
    """A compute process of a GPU."""

    pid: Count | None
    name: str | None
    used_mib: Count | None


class Gpu(TypedDict):
    """See `gpu_xml._gpu`."""

    address: str | None
    uuid: str | None
    model: str | None
    mig: str | None
    memory_mib: Count | None
    used_mib: Count | None
    busy_percent: Count | None
    ecc: str | None
    ecc_pending: str | None
    uncorrectable: Count | None
    remap_pending: bool | None
    remap_failure: bool | None
    remapped: Count | None
    retire_pending: bool | None
    recovery: str | None
    slowed_by: list[str] | None
    max_sm_mhz: Count | None
    fabric_state: str | None
    fabric_status: str | None
    nvlink_domain: str | None
    processes: list[GpuProcess] | None
    errors: Reasons
    unread: Reasons


class _Driver(TypedDict):
    driver: str | None
    cuda: str | None
    attached: Count | None


class Smi(_Driver):
    """See `gpu_xml.parse`."""

    gpus: list[Gpu]


class GpuFacts(_Driver):
    """See `gpu.read`."""

    gpus: list[Gpu] | None
    module: str | None
    open_module: bool | None
    switches: Count | None
    fabric_manager: str | None
    fabric_manager_runs: bool | None
    on_bus: Count | None
    unread: Reasons


class Gid(TypedDict):
    """A GID in use."""

    index: Count
    gid: str
    type: str | None
    net: str | None


class Port(TypedDict):
    """See `rdma._port`."""

    device: str
    port: Count
    efa: bool | None
    state: str | None
    physical: str | None
    rate_gbps: Amount | None
    link: str | None
    net: str | None
    firmware: str | None
    numa: str | None
    gids: list[Gid]


class Efa(TypedDict):
    """See `rdma._efa`."""

    on_bus: Count
    domains: Count | None
    libfabric: str | None
    plugin: str | None
    installer: str | None
    driver: str | None
    peer_memory: str | None


class RdmaFacts(TypedDict):
    """See `rdma.read`."""

    ports: list[Port] | None
    efa: Efa | None
    unread: Reasons


class PeerMemoryFacts(TypedDict):
    """See `peer_memory.read`."""

    kernel: str | None
    modules: list[str] | None
    unread: Reasons


class LimitsFacts(TypedDict):
    """See `limits.read`."""

    user: str | None
    memlock: Count | Unlimited | None
    nofile: Count | Unlimited | None
    unread: Reasons


class ProgramsFacts(TypedDict):
    """See `programs.read`."""

    test: str | None
    test_sha256: str | None
    test_mpi: bool | None
    nccl: str | None
    plugin: str | None
    net_plugins: list[str]
    mpirun: str | None
    mpi: str | None
    conf: dict[str, str]
    unread: Reasons


class Route(TypedDict):
    """One next hop of a route."""

    dst: str | None
    dev: str
    gateway: str | None
    table: str
    metric: Count


class Lookup(TypedDict):
    """See `names.read`."""

    forward: list[str] | None
    reverse: list[str] | None
    back: list[str] | None
    error: str | None


class NamesFacts(TypedDict):
    """See `names.read`."""

    hostname: str | None
    instance: str | None
    reached_at: str | None
    interfaces: dict[str, list[WithPrefix]] | None
    routes: list[Route] | None
    switches: dict[str, str] | None
    peers: dict[str, Lookup]
    unread: Reasons


class JobsFacts(TypedDict):
    """See `jobs.read`."""

    slurm_state: str | None
    slurm_steps: Count | None
    kubernetes_pods: Count | None
    nccl_tests: Count | None
    unread: Reasons


class LoginTry(TypedDict):
    """A login to a peer."""

    ok: bool
    hostname: str | None
    error: str | None
    seconds: Amount


class ReachFacts(TypedDict):
    """See `reach.read`."""

    user: str | None
    peers: dict[str, LoginTry]
    unread: Reasons


class Facts(TypedDict, total=False):
    """See `gather.gather`; only the subjects that were asked for."""

    gpu: GpuFacts | UnreadSubject
    rdma: RdmaFacts | UnreadSubject
    peer_memory: PeerMemoryFacts | UnreadSubject
    limits: LimitsFacts | UnreadSubject
    programs: ProgramsFacts | UnreadSubject
    names: NamesFacts | UnreadSubject
    jobs: JobsFacts | UnreadSubject
    reach: ReachFacts | UnreadSubject
    seconds: Amount
