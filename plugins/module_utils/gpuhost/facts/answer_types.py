"""Types of the facts that a host answers; the controller holds every answer against them.

None: could not be read, and then `unread` has the reason under the name of the value. A host imports none of this.
"""

from __future__ import annotations

from ipaddress import ip_interface
from typing import Annotated, Literal, TypedDict

from ..bounds import Amount, Count, Digits, Parsed, Unlimited

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
    """A process with a context on a GPU. `type`: C, G, C+G, or M+C of a client of MPS."""

    pid: Count | None
    name: str | None
    used_mib: Count | None
    type: str
    gi: Count | None
    ci: Count | None


class MigInstance(TypedDict):
    """A MIG device of a GPU."""

    index: Count | None
    gi: Count | None
    ci: Count | None
    uuid: str | None
    memory_mib: Count | None
    used_mib: Count | None


class _Gpu(TypedDict):
    """Values of any driver."""

    address: str | None
    minor: Count | None
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
    sram_threshold: bool | None
    recovery: str | None
    slowed_by: list[str] | None
    persistence: str | None
    compute_mode: str | None
    temperature_c: int | None
    margin_c: int | None
    slow_at_c: int | None
    power_limit_w: Count | None
    default_power_limit_w: Count | None
    max_sm_mhz: Count | None
    fabric_state: str | None
    fabric_status: str | None
    nvlink_domain: str | None
    processes: list[GpuProcess] | None
    displays: list[GpuProcess] | None
    instances: list[MigInstance]
    errors: Reasons
    unread: Reasons


class Gpu(_Gpu, total=False):
    """See `gpu_xml._gpu`. Newer drivers print these values; facts of older audits lack them."""

    unrepairable: bool | None
    repair_pending: bool | None
    fabric_faults: list[str] | None
    banks_without_reserve: Count | None
    memory_c: int | None
    memory_limit_c: int | None
    pcie_gen: Count | None
    most_pcie_gen: Count | None
    performance_state: str | None


class _Driver(TypedDict):
    driver: str | None
    cuda: str | None
    attached: Count | None


class Smi(_Driver):
    """See `gpu_xml.parse`."""

    gpus: list[Gpu]
    unread: Reasons


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


class GdsCheck(TypedDict):
    """See `gds.parse`."""

    is_verified: bool
    supported: list[str]
    is_compat_forced: bool | None
    gpus: Count
    gpus_without: list[str]


class GdsCounters(TypedDict):
    """See `gds.counters`."""

    reads: Count | None
    writes: Count | None
    active: Count


class GdsFacts(TypedDict):
    """See `gds.read`."""

    check: GdsCheck | None
    counters: GdsCounters | None
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
    gds: GdsFacts | UnreadSubject
    seconds: Amount


class Boot(TypedDict):
    """See `kernel_log.read`."""

    boot: Literal[0, -1]
    lines: list[str]
    kernel_lines: Count
    dropped: Count


class KernelLogFacts(TypedDict):
    """See `kernel_log.read`."""

    boots: list[Boot] | None
    unread: Reasons


class NvlinkGpu(TypedDict):
    """See `nvlink.parse` and `nvlink.parse_errors`."""

    gpu: Count
    links: dict[str, Amount] | None
    errors: dict[str, Count] | None


class NvlinkFacts(TypedDict):
    """See `nvlink.read`."""

    gpus: list[NvlinkGpu] | None
    unread: Reasons


class LinkErrors(TypedDict):
    """Errors of a PCIe link since boot."""

    fatal: Count | None
    nonfatal: Count | None
    correctable: Count | None


class PcieLink(TypedDict):
    """See `pcie._link`."""

    address: str
    kind: Literal["gpu", "nic"]
    width: Amount | None
    speed: Amount | None
    most_width: Amount | None
    most_speed: Amount | None
    port_width: Amount | None
    port_speed: Amount | None
    errors: LinkErrors


class PcieFacts(TypedDict):
    """See `pcie.read`."""

    links: list[PcieLink] | None
    unread: Reasons


class Rise(TypedDict):
    """A counter at the beginning and the end of the window."""

    before: Count
    after: Count


class CountersFacts(TypedDict):
    """See `counters.read`."""

    window_s: Amount | None
    ports: dict[str, dict[str, Rise]] | None
    links: dict[str, dict[str, Rise]] | None
    unread: Reasons


class Disk(TypedDict):
    """See `system._disks`."""

    path: str
    type: str
    read_only: bool
    free_percent: Amount | None
    free_inodes_percent: Amount | None


class Memory(TypedDict):
    """See `system._memory`."""

    total_mib: Count
    available_mib: Count
    swap_used_mib: Count | None
    corrupted_mib: Count | None


class Edac(TypedDict):
    """See `system._edac`."""

    controllers: Count
    corrected: Count
    uncorrected: Count


class Clock(TypedDict):
    """See `system._clock`."""

    synchronised: bool
    most_wrong_ms: Amount


class Process(TypedDict):
    """A process by its number and name."""

    pid: Count
    name: str


class Stuck(TypedDict):
    """See `system._stuck`."""

    count: Count
    processes: list[Process]


class Kubelet(TypedDict):
    """See `system._kubelet`."""

    runs: bool
    healthy: bool | None
    gpu_plugin: bool | None


class SystemFacts(TypedDict):
    """See `system.read`."""

    disks: list[Disk] | None
    memory: Memory | None
    edac: Edac | None
    clock: Clock | None
    uptime_s: Amount | None
    stuck: Stuck | None
    zombies: Count | None
    failed_units: list[str] | None
    kubelet: Kubelet | None
    unread: Reasons


class NetworkMount(TypedDict):
    """A network file system; `error`: why it does not answer."""

    path: str
    type: str
    source: str
    options: list[str]
    error: str | None


class LustreTarget(TypedDict):
    """See `lustre.parse_df`."""

    target: str
    inodes: bool
    used_percent: Count | None
    available: str | None
    mount: str | None
    error: str | None


class LustreImport(TypedDict):
    """See `lustre.parse_state`."""

    target: str
    state: str
    evicted: bool


class LustreReads(TypedDict):
    """Requests by their size in pages of 4 KiB."""

    filesystem: str
    rpcs_by_pages: dict[Digits, Count]


class StorageFacts(TypedDict):
    """See `storage.read`."""

    mounts: list[NetworkMount] | None
    targets: list[LustreTarget] | None
    imports: list[LustreImport] | None
    reads: list[LustreReads] | None
    unread: Reasons


class LoadMount(TypedDict):
    """The mount of a path; `device` as "254:0"."""

    mount_point: str
    type: str
    device: str
    source: str


class LustreEvent(TypedDict, total=False):
    """Number of events, and the sum of their values: bytes or microseconds."""

    count: Count
    sum: Count


class LustreLoad(TypedDict):
    """Events of file systems and of the connections to their OSTs; usage of targets, stripes (-1: all) of a path."""

    clients: dict[str, dict[str, LustreEvent]]
    osts: dict[str, dict[str, LustreEvent]]
    targets: list[LustreTarget]
    stripes: int | None


class IoLimit(TypedDict):
    """A control group's limits on a disk in a second, and what its processes used."""

    group: str
    device: str
    limits: dict[str, Count]
    used: dict[str, Count]


class NetworkLoad(TypedDict):
    """Rises of an interface's counters."""

    rise: dict[str, Count]
    speed_mbps: Count | None


class TcpSegments(TypedDict, total=False):
    """Segments of all connections."""

    sent: Count
    retransmitted: Count


class StorageUser(TypedDict):
    """A process with open files there; its counters are of all its files. `is_writer`: one of them is open to write."""

    pid: Count
    name: str
    is_writer: bool
    read_bytes: Count | None
    written_bytes: Count | None


class ReadPhase(TypedDict):
    """See `read_trial.PHASES`; milliseconds of one read. `limits`: as used within `counted_s`."""

    name: str
    streams: Count
    block_bytes: Count
    reads: Count
    bytes: Count
    seconds: Amount
    median_ms: Amount | None
    slowest_ms: Amount | None
    limits: list[IoLimit]
    counted_s: Amount


class SmallFiles(TypedDict):
    """Whole files that were opened and read one after the other."""

    files: Count
    bytes: Count
    seconds: Amount
    limits: list[IoLimit]
    counted_s: Amount


class ReadTrial(TypedDict):
    """See `read_trial.read`, with the rises of counters while it ran."""

    entries: Count
    list_s: Amount
    is_direct: bool | None
    file_bytes: Count
    cached_percent: Count | None
    phases: list[ReadPhase]
    small: SmallFiles | None
    seconds: Amount
    nfs: dict[str, dict[str, Count]]
    tcp: TcpSegments | None


class StorageLoadFacts(TypedDict):
    """See `storage_load.read`."""

    path: str
    mount: LoadMount | None
    window_s: Amount
    nfs: dict[str, dict[str, Count]]
    disks: dict[str, dict[str, Count]]
    lustre: LustreLoad
    limits: list[IoLimit]
    network: dict[str, NetworkLoad]
    tcp: TcpSegments | None
    refaulted_bytes: Count | None
    pressure: Amount | None
    users: list[StorageUser]
    hidden: Count
    trial: ReadTrial | None
    unread: Reasons


class StorageLoadAnswer(TypedDict, total=False):
    """Answer to the subjects "storage load"."""

    storage_load: StorageLoadFacts | UnreadSubject


class ProgramOutput(TypedDict):
    """See `outputs.read`."""

    command: str
    code: Count
    text: str


class OutputsFacts(TypedDict):
    """See `outputs.read`; `unread` by command."""

    printed: list[ProgramOutput] | None
    unread: Reasons


class HealthFacts(TypedDict, total=False):
    """See `health.read`; only the subjects that were asked for."""

    gpu: GpuFacts | UnreadSubject
    rdma: RdmaFacts | UnreadSubject
    names: NamesFacts | UnreadSubject
    jobs: JobsFacts | UnreadSubject
    kernel_log: KernelLogFacts | UnreadSubject
    nvlink: NvlinkFacts | UnreadSubject
    pcie: PcieFacts | UnreadSubject
    counters: CountersFacts | UnreadSubject
    system: SystemFacts | UnreadSubject
    storage: StorageFacts | UnreadSubject
    seconds: Amount


class HealthAndOutputs(HealthFacts, total=False):
    """Facts of an audit, and what programs printed."""

    outputs: OutputsFacts | UnreadSubject


class ProcessDetails(TypedDict):
    """See `process_details.read`."""

    pid: Count
    name: str
    command: str | None
    state: str | None
    blocked_in: str | None
    since: Count | None
    start_ticks: Count | None
    uid: Count | None
    login_uid: Count | None
    cgroup: str | None
    mounts: str
    slurm: dict[str, str]


class PodDevices(TypedDict):
    """See `gpu_allocations.kubernetes`."""

    pod: str
    container: str | None
    resource: str
    devices: list[str]


class SlurmJob(TypedDict):
    """See `gpu_allocations.slurm`."""

    job: str | None
    sluid: str | None
    number: str | None
    gpus: list[Count] | None


class PodName(TypedDict):
    """See `owner_names.pods`."""

    namespace: str
    name: str


class ContainerName(TypedDict):
    """See `owner_names.containers`."""

    name: str | None
    image: str | None


class Session(TypedDict):
    """See `owner_names.sessions`."""

    user: str | None
    service: str | None
    remote: str | None
    tty: str | None


class GpuUse(_Driver):
    """See `gpu_use.read`."""

    gpus: list[Gpu] | None
    hostname: str | None
    product: str | None
    login: str | None
    now: Count | None
    sees_all: bool | None
    slurmd: bool | None
    kubelet: bool | None
    on_bus: Count | None
    pid_namespace: str | None
    cgroup_namespace: str | None
    open_by: dict[Digits, list[Count]] | None
    processes: dict[Digits, ProcessDetails] | None
    pod_devices: list[PodDevices] | None
    slurm_jobs: list[SlurmJob] | None
    pods: dict[str, PodName]
    containers: dict[str, ContainerName]
    sessions: dict[str, Session]
    users: dict[str, str]
    slurm_pids: dict[str, list[str]]
    unread: Reasons


class UseFacts(TypedDict, total=False):
    """See `gather.gather_use`."""

    use: GpuUse | UnreadSubject
    seconds: Amount


class StackGpu(TypedDict):
    """A GPU on the PCI bus."""

    address: str
    device: str
    subvendor: str | None
    subdevice: str | None


class StackRepository(TypedDict):
    """One of NVIDIA's repositories."""

    file: str
    uri: str
    keys: list[str]
    verified: bool


class StackKey(TypedDict):
    """A key that signs repositories; `unusable`: why it cannot be used, "" if it can."""

    name: str
    fingerprint: str
    unusable: str


class StackAddition(TypedDict):
    """A repository that the host would get, see `additions.read`."""

    name: str
    file: str
    text: str
    key_file: str
    key: str
    fingerprints: list[str]
    wrong: str


class StackCdi(TypedDict):
    """See `cdi.read`."""

    path: str
    drivers: list[str]
    gpus: list[Count]
    missing: list[str]


class Stack(TypedDict):
    """See `stack.read`."""

    gpus: list[StackGpu] | None
    nvswitches: list[str] | None
    infiniband_vpd: list[str] | None
    efa_devices: list[str] | None
    smi_gpus: Count | None
    cdi: list[StackCdi] | None
    kernel: str | None
    headers: bool | None
    secure_boot: bool | None
    mok_enrolled: bool | None
    distribution: str | None
    architecture: str | None
    packages: dict[str, str] | None
    interrupted: list[str] | None
    holds: list[str] | None
    pins: list[str] | None
    running_module: str | None
    running_open: bool | None
    installed_module: str | None
    installed_open: bool | None
    foreign_modules: list[str] | None
    busy: list[str] | None
    repositories: list[StackRepository] | None
    keys: list[StackKey] | None
    additions: list[StackAddition] | None
    offers: dict[str, list[str]] | None
    lists_age_days: Count | None
    efa_installed: str | None
    efa_kind: str | None
    efa_wrong: list[str] | None
    rdma_drivers: list[str] | None
    peer_modules: list[str] | None
    peer_symbols: bool | None
    efa_module: str | None
    gdrdrv_module: str | None
    gdrdrv_device: bool | None
    nvidia_fs_module: str | None
    gdscheck_lacks: str | None
    nccl_tests: str | None
    nccl_tests_lacks: list[str] | None
    compute: list[str] | None
    unread: Reasons


class StackFacts(TypedDict, total=False):
    """Answer to the subjects "stack"."""

    stack: Stack


class Transaction(TypedDict):
    """See `transaction.read`."""

    manager: str | None
    output: str | None
    unread: Reasons


class TransactionFacts(TypedDict, total=False):
    """Answer to the subjects "transaction"."""

    transaction: Transaction
