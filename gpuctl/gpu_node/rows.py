"""Rows of what is known about GPUs, drivers and packages; each has its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.gpu_node.model import PciGpu
from gpuctl.gpu_node.version import DriverVersion


@dataclass(frozen=True)
class Branch:
    branch: int
    kind: str
    max_cuda_major: int
    proprietary: bool
    source: str
    end: str = ""  # last month of support, 2026-06; "" if it is not published
    last_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cuda:
    cuda: str
    driver: DriverVersion
    source: str


@dataclass(frozen=True)
class CudaMajor:
    major: int
    branch: int
    source: str


@dataclass(frozen=True)
class GpuModel:
    ids: tuple[str, ...]
    model: str
    architecture: str
    form: str
    modules: str
    source: str
    subdevices: tuple[str, ...] = ()
    least_driver: DriverVersion | None = None
    mig_since: DriverVersion | None = None
    mig: str = ""
    why: str = ""

    def fits(self, gpu: PciGpu) -> bool:
        """True for a GPU of this row; a row with subdevices fits only those."""
        return gpu.device in self.ids and (not self.subdevices or gpu.subdevice in self.subdevices)


@dataclass(frozen=True)
class Architecture:
    name: str
    least_driver: DriverVersion
    exact: bool
    source: str


@dataclass(frozen=True)
class Fabric:
    name: str
    detect: str
    value: str
    services: tuple[str, ...]
    modules: tuple[str, ...]
    why: str
    source: str


@dataclass(frozen=True)
class Key:
    name: str
    fingerprint: str
    distributions: tuple[str, ...]
    uri: str  # regular expression for the addresses of the repositories that it signs; mirrors keep that part
    source: str
    why: str = ""


@dataclass(frozen=True)
class Source:
    """A repository of NVIDIA's to add: addresses below `base`, with {distribution} and {architecture} of the host."""

    name: str
    component: str
    distributions: tuple[str, ...]
    base: str
    path: str
    suite: str
    key: str
    source: str


@dataclass(frozen=True)
class PackageSet:
    distributions: tuple[str, ...]
    repository: str  # nvidia, distribution
    manager: str
    branches: tuple[int, ...]
    open: tuple[str, ...]
    proprietary: tuple[str, ...]
    libraries: tuple[str, ...]
    fabric_manager: tuple[str, ...]
    nvlsm: tuple[str, ...]
    imex: tuple[str, ...]
    free: tuple[str, ...]
    pin: str
    lock: str
    kernel: tuple[str, ...]
    headers: str
    source: str
    why: str = ""
    stream_open: str = ""
    stream_proprietary: str = ""

    def has(self, branch: int) -> bool:
        first, last = self.branches
        return first <= branch and (not last or branch <= last)

    def fits(self, distribution: str, branch: int, repository: str = "nvidia") -> bool:
        return distribution in self.distributions and self.has(branch) and self.repository == repository


@dataclass(frozen=True)
class OneVersion:
    part: str
    names: str  # regular expression
    source: str

    def fits(self, package: str) -> bool:
        return re.fullmatch(self.names, package) is not None


@dataclass(frozen=True)
class Dcgm:
    cuda_major: int
    packages: tuple[str, ...]
    removes: tuple[str, ...]
    unit: str
    source: str


@dataclass(frozen=True)
class Toolkit:
    packages: tuple[str, ...]
    revision: str
    source: str


@dataclass(frozen=True)
class Efa:
    """EFA's installer on distributions that it knows. `base`: address of its archives."""

    manager: str
    distributions: tuple[str, ...]
    record: str
    libraries: str
    base: str
    source: str
    why: str = ""


@dataclass(frozen=True)
class DkmsModule:
    """Packages of one version, and the module that DKMS builds of them."""

    packages: tuple[str, ...]
    module: str
    source: str


@dataclass(frozen=True)
class NcclTests:
    version: str
    sha256: str
    source: str


@dataclass(frozen=True)
class DmaBuf:
    """First kernel in which an adapter's driver registers memory by DMA-BUF.

    `module`: first version of the vendor's module of this driver that has it, on every kernel with DMA-BUF.
    """

    driver: str
    kernel: str
    source: str
    module: str = ""


@dataclass(frozen=True)
class Mig:
    gpu: str
    profiles: Mapping[str, int] = field(hash=False)
    source: str
    why: str = ""


@dataclass(frozen=True)
class Knowledge:
    """All rows of `gpuctl/data/gpu_stack/`."""

    branches: tuple[Branch, ...]
    cuda: tuple[Cuda, ...]
    majors: tuple[CudaMajor, ...]
    gpus: tuple[GpuModel, ...]
    architectures: tuple[Architecture, ...]
    fabric: tuple[Fabric, ...]
    keys: tuple[Key, ...]
    repositories: tuple[Source, ...]
    sets: tuple[PackageSet, ...]
    one_version: tuple[OneVersion, ...]
    dcgm: tuple[Dcgm, ...]
    toolkit: tuple[Toolkit, ...]
    efa: tuple[Efa, ...]
    gdrcopy: tuple[DkmsModule, ...]
    gds: tuple[DkmsModule, ...]
    dmabuf: tuple[DmaBuf, ...]
    nccl_tests: tuple[NcclTests, ...]
    mig: tuple[Mig, ...]

    def model(self, gpu: PciGpu) -> GpuModel | None:
        """The row of a GPU; None if its id is not known, or if another differs in the unread subsystem only."""
        rows = [row for row in self.gpus if gpu.device in row.ids]
        if gpu.subdevice is None and any(row.subdevices for row in rows):
            return None
        return next((row for row in rows if row.fits(gpu)), None)
