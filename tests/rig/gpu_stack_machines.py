"""Described GPU machines, by PCI ids, for the decisions about their stack.

Ids and subsystems are those of the open module's README and of recorded machines; counts are those of AWS's instance
types or of NVIDIA's boards. `INFERRED` names machines of which no recording exists: their NVSwitches and bridges
follow from facts about their board.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuctl.gpu_node.model import HostGpuFacts, PciGpu, StackRequest
from gpuctl.gpu_node.offers import names_to_look_up
from gpuctl.gpu_node.rows import Knowledge
from gpuctl.gpu_node.version import DriverVersion

BARE = HostGpuFacts(
    gpus=(),
    nvswitches=(),
    infiniband_vpd=(),
    efa_devices=(),
    smi_gpus=None,
    cdi=(),
    kernel="6.8.0-1021-aws",
    headers=True,
    secure_boot=False,
    mok_enrolled=None,
    distribution="ubuntu24.04",
    architecture="x86_64",
    packages={},
    interrupted=(),
    holds=(),
    pins=(),
    running_module="",
    running_open=None,
    installed_module="",
    installed_open=None,
    foreign_modules=(),
    busy=(),
    repositories=(),
    keys=(),
    additions=(),
    offers={},
    lists_age_days=0,
    efa_installed="",
    efa_kind=None,
    efa_wrong=(),
    rdma_drivers=(),
    peer_modules=(),
    peer_symbols=None,
    efa_module="",
    gdrdrv_module="",
    gdrdrv_device=False,
    nvidia_fs_module="",
    gdscheck_lacks="",
    nccl_tests="",
    nccl_tests_lacks=(),
    compute=(),
)


def offered(request: StackRequest, known: Knowledge, kernel: str | None = BARE.kernel) -> dict[str, tuple[str, ...]]:
    """Repositories that have everything a request may need, in its versions."""
    driver = str(request.driver) if isinstance(request.driver, DriverVersion) else f"{request.driver}.178.04"
    versions = dict.fromkeys(names_to_look_up(request, known), f"{driver}-1")
    versions |= dict.fromkeys(known.toolkit[0].packages, f"{request.toolkit}-1")
    versions |= {name: f"1:{request.dcgm}" for row in known.dcgm for name in row.packages}
    versions |= {name: str(request.gdrcopy) for row in known.gdrcopy for name in row.packages}
    versions |= {name: str(request.gds) for row in known.gds for name in row.packages}
    free = {name for row in known.sets for name in row.free}
    return {
        name.replace("{kernel}", kernel or ""): ("2025.10.11-1" if name in free else version,)
        for name, version in versions.items()
    }


def gpus(count: int, device: str, subdevice: str | None = None) -> tuple[PciGpu, ...]:
    return tuple(PciGpu(f"0000:{0x10 + number:02x}:00.0", device, "10de", subdevice) for number in range(count))


def machine(count: int, device: str, subdevice: str | None = "0001", **facts: Any) -> HostGpuFacts:
    """A host with GPUs of one id and no driver yet; `facts` replaces anything else."""
    return replace(BARE, **{"gpus": gpus(count, device, subdevice), **facts})


BRIDGE = "IBM_SPECIFIC VA SW_MNG 1.0"  # invented around the string that matters

MACHINES: dict[str, HostGpuFacts] = {
    "T4": machine(1, "1eb8", "12a2"),
    "A10G": machine(4, "2237", "152f"),
    "A10": machine(2, "2236", "1482"),
    "L4": machine(1, "27b8", "16ca"),
    "L4 fraction": machine(1, "27b8", "1733"),
    "L40S": machine(8, "26b9", "1851"),
    "V100 SXM": machine(4, "1db1"),
    "DGX-2": machine(16, "1db8", nvswitches=("1ac2",) * 12),
    "A30": machine(2, "20b7", "1532"),
    "A100 PCIe": machine(2, "20f1", "145f"),
    "HGX A100": machine(8, "20b0", nvswitches=("1af1",) * 6),
    "HGX A100 with 4 GPUs": machine(4, "20b2", "1463"),
    "H100 PCIe": machine(4, "2331", "1626"),
    "HGX H100": machine(8, "2330", "16c1", nvswitches=("22a3",) * 4),
    "one H100 in a VM": machine(1, "2330", "16c1"),
    "H100 id 2339": machine(4, "2339", "17fc"),
    "HGX H200": machine(8, "2335", "18be", nvswitches=("22a3",) * 4),
    "one H200 in a VM": machine(1, "2335", "18bf"),  # as recorded
    "HGX B200": machine(8, "2901", "1999", infiniband_vpd=("ConnectX-7", BRIDGE, BRIDGE)),
    "one B200 in a VM": machine(1, "2901", "1999"),
    "HGX B300": machine(8, "3182", "20e6", infiniband_vpd=(BRIDGE,)),
    "GB200 tray": machine(4, "2941", "2046", architecture="aarch64"),
    "GB300 tray": machine(4, "31c2", "21f1", architecture="aarch64"),
    "GH200": machine(1, "2342", "1809", architecture="aarch64"),
    "RTX PRO 6000": machine(8, "2bb5", "204e"),
    "none": machine(0, "ffff"),
}
INFERRED = {
    "A10", "A30", "A100 PCIe", "HGX A100 with 4 GPUs", "H100 id 2339", "HGX B300", "one B200 in a VM", "GB300 tray",
    "GH200", "RTX PRO 6000",
}  # fmt: skip
