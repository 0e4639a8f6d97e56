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
class HostGpuFacts:
    """Facts that decide a host's stack. None: could not be read, never "nothing"; `unread` has the reasons.

    `running_module`: version of the loaded module, "" if none is loaded. `installed_module`: version that modinfo
    finds for the running kernel, "" if there is none. `keys`: file of a repository's key -> its fingerprint.
    """

    gpus: tuple[PciGpu, ...] | None
    nvswitches: tuple[str, ...] | None  # PCI device ids
    infiniband_vpd: tuple[str, ...] | None  # texts of the adapters' vital product data
    efa_devices: tuple[str, ...] | None
    smi_gpus: int | None  # that nvidia-smi lists
    kernel: str | None
    headers: bool | None  # of the running kernel
    secure_boot: bool | None
    mok_enrolled: bool | None  # a key for DKMS modules
    distribution: str | None  # ubuntu24.04, rhel9
    architecture: str | None  # x86_64, aarch64
    packages: Mapping[str, str] | None = field(hash=False)  # name -> version, of those that concern the stack
    holds: tuple[str, ...] | None
    pins: tuple[str, ...] | None
    running_module: str | None
    running_open: bool | None
    installed_module: str | None
    installed_open: bool | None
    foreign_modules: tuple[str, ...] | None  # nouveau, nova_core, nova_drm, if loaded
    busy: tuple[str, ...] | None  # reasons not to disturb the host
    keys: Mapping[str, str] | None = field(hash=False)
    unread: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class StackRequest:
    """A site's `gpu_stack`. `driver`: full version, branch, or "none"; other versions None where nothing is set."""

    driver: DriverVersion | int | None
    flavour: str = "auto"  # auto, open, proprietary
    cuda: str | None = None  # toolkit version the jobs need, 12.8
    toolkit: str | None = None
    dcgm: str | None = None
    efa: str | None = None

    @property
    def branch(self) -> int | None:
        return self.driver.branch if isinstance(self.driver, DriverVersion) else self.driver


@dataclass(frozen=True)
class Choice:
    """A decision and its reason; `value` is None if it could not be made."""

    value: str | None
    why: str


@dataclass(frozen=True)
class StackPlan:
    """Decisions for one host. `reboot` is None if it could not be determined."""

    host: str
    flavour: Choice
    fabric: Choice  # nvlsm, imex, fabric_manager or none
    services: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()  # to load at boot
    module_stream: str = ""
    packages: tuple[str, ...] = ()  # with =VERSION or -VERSION where the driver's full version is set
    holds: tuple[str, ...] = ()
    pin: str = ""
    reboot: bool | None = None
    reboot_why: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        """True if the plan must not be applied: a check failed or could not be answered."""
        return overall(self.findings) in {Verdict.FAIL, Verdict.UNKNOWN}
