"""The NVIDIA GPUs of a host, read from files of the driver and the kernel, without nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .host import Host
from .topology import node_of

FOLDER = "/proc/driver/nvidia/gpus"
CAPABILITIES = "/proc/driver/nvidia/capabilities"
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Gpu:
    """One GPU. `index` is nvidia-smi's, in PCI bus order; it may differ from CUDA's and from `minor` (/dev/nvidiaN).

    `uuid` is empty until the driver has started the GPU; `node` is None if the firmware names no NUMA node.
    """

    index: int
    address: str
    uuid: str
    minor: int | None
    model: str
    node: int | None
    split: bool = False  # into MIG instances


def gpus(host: Host) -> list[Gpu]:
    """GPUs that the driver serves, in nvidia-smi's order; empty if no driver is loaded."""
    addresses = sorted((n for n in host.listdir(FOLDER) if _place(n) is not None), key=lambda n: _place(n) or ())
    driver_info = {address: _driver_info(host, address) for address in addresses}
    # nvidia-smi neither shows nor numbers a GPU that the administrator has excluded.
    served = [
        a for a in addresses if "Yes" not in (driver_info[a].get("GPU Excluded"), driver_info[a].get("Blacklisted"))
    ]
    return [_gpu(host, index, address, driver_info[address]) for index, address in enumerate(served)]


def _driver_info(host: Host, address: str) -> dict[str, str]:
    """The driver's "Name: <white space> value" lines about a GPU."""
    pairs = (line.partition(":") for line in host.read(f"{FOLDER}/{address}/information").splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _gpu(host: Host, index: int, address: str, driver_info: dict[str, str]) -> Gpu:
    uuid, minor = driver_info.get("GPU UUID", ""), driver_info.get("Device Minor", "")
    number = int(minor) if minor.isdigit() else None
    return Gpu(
        index,
        address,
        uuid if UUID.fullmatch(uuid) else "",
        number,
        driver_info.get("Model", "GPU of unknown model"),
        node_of(host, address),
        number is not None and any(n.startswith("gi") for n in host.listdir(f"{CAPABILITIES}/gpu{number}/mig")),
    )


def _place(address: str) -> tuple[int, ...] | None:
    """A PCI address as numbers, equal for all spellings: "0000:9b:00.0", "00000000:9B:00.0", "9b:00.0"."""
    match = re.fullmatch(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])", address)
    return tuple(int(part or "0", 16) for part in match.groups()) if match else None


def find(known: Sequence[Gpu], name: str) -> Gpu | None:
    """The GPU with this index, UUID (or unique prefix of one) or PCI address; None if there is none."""
    place = _place(name)
    if name.isdigit():
        fitting = [gpu for gpu in known if gpu.index == int(name)]
    elif place is not None:
        fitting = [gpu for gpu in known if _place(gpu.address) == place]
    else:
        fitting = [gpu for gpu in known if name.startswith("GPU-") and gpu.uuid.startswith(name)]
    return fitting[0] if len(fitting) == 1 else None
