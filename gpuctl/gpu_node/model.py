"""Values of a GPU host's stack: facts of the host, the site's request, and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.domain.findings import Finding, Verdict, overall
from gpuctl.gpu_node.version import DriverVersion


@dataclass(frozen=True)
class PciGpu:
    """A GPU on the PCI bus; ids are four lower-case hexadecimal digits. The subsystem is None if it was not read."""

    address: str
    device: str
    subvendor: str | None = None
    subdevice: str | None = None


@dataclass(frozen=True)
class Repository:
    """One of NVIDIA's repositories as a host has it.

    `keys`: files, addresses or fingerprints of the keys that may sign; empty: any that the package manager trusts.
    `verified`: False if signatures are not checked.
    """

    file: str
    uri: str
    keys: tuple[str, ...] = ()
    verified: bool = True


@dataclass(frozen=True)
class RepositoryKey:
    """A key on a host: its file, its full fingerprint, and why it cannot be used (expired, revoked), "" if it can."""

    name: str
    fingerprint: str
    unusable: str = ""


@dataclass(frozen=True)
class Addition:
    """A repository that the host does not have: its file and key, as they would be written.

    `fingerprints`: of the fetched key, which may have several; `wrong`: why it could not be fetched.
    """

    name: str
    file: str
    text: str
    key_file: str
    key: str
    fingerprints: tuple[str, ...]
    wrong: str = ""


@dataclass(frozen=True)
class CdiSpec:
    """A CDI specification of the host's GPUs. `drivers`: versions of libcuda in it; `gpus`: numbers of its devices.

    `missing`: some of its files that the host does not have.
    """

    path: str
    drivers: tuple[str, ...]
    gpus: tuple[int, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class HostGpuFacts:
    """Facts that decide a host's stack. None: could not be read, never "nothing"; `unread` has the reasons.

    `running_module`: version of the loaded module, "" if none is loaded. `installed_module`: version that modinfo
    finds for the running kernel, "" if there is none. `offers`: package -> versions in the host's repositories, the
    newest first, of the packages that were looked up.
    """

    gpus: tuple[PciGpu, ...] | None
    nvswitches: tuple[str, ...] | None  # PCI device ids
    infiniband_vpd: tuple[str, ...] | None  # texts of the adapters' vital product data
    efa_devices: tuple[str, ...] | None
    smi_gpus: int | None  # that nvidia-smi lists
    cdi: tuple[CdiSpec, ...] | None
    kernel: str | None
    headers: bool | None  # of the running kernel
    secure_boot: bool | None
    mok_enrolled: bool | None  # a key for DKMS modules
    distribution: str | None  # ubuntu24.04, rhel9
    architecture: str | None  # x86_64, aarch64
    packages: Mapping[str, str] | None = field(hash=False)  # name -> version, of those that concern the stack
    interrupted: tuple[str, ...] | None  # packages that dpkg has left half done
    holds: tuple[str, ...] | None
    pins: tuple[str, ...] | None
    running_module: str | None
    running_open: bool | None
    installed_module: str | None
    installed_open: bool | None
    foreign_modules: tuple[str, ...] | None  # nouveau, nova_core, nova_drm, if loaded
    busy: tuple[str, ...] | None  # reasons not to disturb the host
    repositories: tuple[Repository, ...] | None
    keys: tuple[RepositoryKey, ...] | None
    additions: tuple[Addition, ...] | None  # repositories that the site wants, and the host does not have
    offers: Mapping[str, tuple[str, ...]] | None = field(hash=False)
    lists_age_days: int | None  # since the package lists were fetched
    efa_installed: str | None  # version of the EFA installer, "" if it never ran
    efa_kind: str | None  # full or minimal; None without an installation
    efa_wrong: tuple[str, ...] | None  # why it is half installed, or has no module for the running kernel
    rdma_drivers: tuple[str, ...] | None  # of the RDMA devices
    peer_modules: tuple[str, ...] | None  # loaded ones of facts/peer_memory.py
    peer_symbols: bool | None  # whether ib_core has the interface that nvidia_peermem needs
    efa_module: str | None  # version of the loaded efa; "" for that of the kernel's tree, or if it is not loaded
    gdrdrv_module: str | None  # version of the loaded gdrdrv, "" if it is not loaded
    gdrdrv_device: bool | None  # whether /dev/gdrdrv exists
    nvidia_fs_module: str | None  # version of the loaded nvidia_fs, "" if it is not loaded
    gdscheck_lacks: str | None  # why gdscheck cannot be run, "" if it can
    nccl_tests: str | None  # "2.17.6 sm_90 DIGEST" of the build, or the version of the site's test; ""
    nccl_tests_lacks: tuple[str, ...] | None  # what a build lacks, or why the site's test does not run
    compute: tuple[str, ...] | None  # compute capabilities of the GPUs, if tests are built for them
    unread: Mapping[str, str] = field(default_factory=dict, hash=False)

    def why(self, *names: str) -> str:
        """ ": reason" for the first of these facts that could not be read, to end a message with; "" without one."""
        return next((f": {self.unread[name]}" for name in names if name in self.unread), "")


@dataclass(frozen=True)
class StackRequest:
    """A site's `gpu_stack`. `driver`: full version, branch, or None for no driver; other versions None if not set.

    `repository`: "nvidia" for NVIDIA's CUDA repository or a mirror of it, "distribution" for the distribution's own.
    `without`: packages of the driver's set that the site does not want. `removable`: packages beside the driver that
    may go with the one before. `source`: where NVIDIA's repositories are, for hosts that do not have them: "nvidia", or
    the address of a mirror; None to add none. `imex_nodes`: addresses of the trays that share memory over IMEX; empty
    to leave its list to others.
    """

    driver: DriverVersion | int | None
    flavour: str = "auto"  # auto, open, proprietary
    cuda: str | None = None  # toolkit version the jobs need, 12.8
    toolkit: str | None = None
    dcgm: str | None = None
    efa: str | None = None
    repository: str = "nvidia"
    without: tuple[str, ...] = ()
    removable: tuple[str, ...] = ()
    source: str | None = None
    imex_nodes: tuple[str, ...] = ()
    efa_kind: str | None = None  # None for full; minimal: kernel module and rdma-core only
    efa_source: str | None = None  # where EFA's archives are; None for AWS's server
    efa_key: str | None = None  # fingerprint of the key that signs them; None for AWS's
    peer_memory: str | None = None  # auto, dmabuf, nvidia_peermem
    gdrcopy: str | None = None  # version of its packages, 2.5.2-1
    gds: str | None = None  # version of nvidia-fs, the module of GPUDirect Storage, 2.26.6-1
    nccl_tests: str | None = None  # version to build, or a folder with the site's build
    nccl_tests_source: str | None = None  # where its archives are; None for GitHub
    nccl_tests_sha256: str | None = None  # of the archive; None for the known one
    after_driver: bool = False  # True if the site sets a driver, and this request leaves it to another task
    after_efa: bool = False  # True if the site sets efa, and this request leaves it to another task

    @property
    def branch(self) -> int | None:
        return self.driver.branch if isinstance(self.driver, DriverVersion) else self.driver


@dataclass(frozen=True)
class Choice:
    """A decision and its reason; `value` is None if it could not be made."""

    value: str | None
    why: str


@dataclass(frozen=True)
class Component:
    """A part of the stack: driver, container toolkit, dcgm, efa, gdrcopy, gds, peer memory or nccl-tests.

    `installed`: version on the host, "" for none, None if it could not be read. `packages`: everything that is
    installed for it, by name; `changes`: None if it is not known. `versions`: (package, full version) of all its
    packages, whether they are there or not; empty if they are not known.
    """

    name: str
    desired: str
    installed: str | None
    packages: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    why: str = ""
    changes: bool | None = None
    versions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class StackPlan:
    """Decisions for one host. `reboot` is None if it could not be determined.

    `packages`: what the package manager is given, exact where the repositories' versions are known; empty if nothing
    is to be installed. `installs` and `removes`: the resolved transaction, None until it is resolved.
    """

    host: str
    flavour: Choice
    fabric: Choice  # nvlsm, imex, fabric_manager or none
    gpus: str = ""  # "8 x H100 SXM"
    driver: str = ""  # full version, or the branch if no version could be chosen
    components: tuple[Component, ...] = ()
    services: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()  # to load at boot
    removable: tuple[str, ...] = ()  # packages beside the driver, see `StackRequest`
    module_stream: str = ""
    packages: tuple[str, ...] = ()
    additions: tuple[Addition, ...] = ()  # repositories to add
    imex_nodes: tuple[str, ...] = ()
    waits: tuple[tuple[str, str], ...] = ()  # components that stay as they are for now, and for which event
    efa_kind: str = ""
    efa_uri: str = ""  # where EFA's archives are
    efa_keys: tuple[str, ...] = ()  # fingerprints that may sign them
    nccl_tests: tuple[tuple[str, str], ...] = ()  # folder to check, or version, sha256 and uri to build
    holds: tuple[str, ...] = ()
    pin: str = ""
    reboot: bool | None = None
    reboot_why: str = ""
    installs: Mapping[str, str] | None = field(default=None, hash=False)
    removes: Mapping[str, str] | None = field(default=None, hash=False)
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        """True if the plan must not be applied: a check failed or could not be answered."""
        return overall(self.findings) in {Verdict.FAIL, Verdict.UNKNOWN}

    @property
    def changes(self) -> bool | None:
        """True if something would be installed; None if that is not known."""
        known = [component.changes for component in self.components]
        return True if True in known else None if None in known else False

    @property
    def state(self) -> str:
        """Result for the host: refused, unknown, install, or up to date."""
        verdict = overall(self.findings)
        if verdict in STATES:
            return STATES[verdict]
        return {True: "install", False: "up to date", None: "unknown"}[self.changes]


STATES = {Verdict.FAIL: "refused", Verdict.UNKNOWN: "unknown"}


@dataclass(frozen=True)
class OptionalTests:
    """Tests of hosts that nobody uses. `deep`: level of DCGM's diagnosis, None for none. `search_path`: folders with
    nccl-tests or mpirun on the hosts, before their PATH.
    """

    deep: int | None = None
    nccl: bool = False
    search_path: tuple[str, ...] = ()
