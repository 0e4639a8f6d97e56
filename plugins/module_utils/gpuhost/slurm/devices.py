"""GPUs and MIG instances of a host as lines of gres.conf, with the processor cores near them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from .. import mig_layout, smi
from ..facts import gpu_bus
from ..gpus import CAPABILITIES, FOLDER, Gpu, gpus
from ..host import Host
from ..model import Refused, Unreadable, Unsupported
from ..topology import CPU, as_list, cpus_of, home, nodes, online

_BRAND = re.compile(r"^(NVIDIA|Tesla|GeForce|Quadro|Graphics|Device)\s+", re.IGNORECASE)
_MODEL = re.compile(r"(RTX|TITAN|GTX)\b.*|[A-Z]+\d+[A-Z]*", re.IGNORECASE)
_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)", re.MULTILINE)


class Device(NamedTuple):
    """One GPU or MIG instance: its type in Slurm, files, and cores near it ("" for any)."""

    type: str
    files: tuple[str, ...]
    cores: str


def devices(host: Host, remembered: Host, desired: Mapping[str, object]) -> list[Device]:
    """Devices in the order of their files; `Unsupported` without a GPU, `Refused` or `Unreadable` if one is not sure.

    `remembered`: the host whose answers of nvidia-smi are read once.
    """
    served = _all_served(host)
    modes = {state.uuid: state for state in smi.gpus(remembered)}
    cores = near_cores(host) if desired.get("cores", True) else {}
    known: list[Device] = []
    detected = desired.get("autodetect") == "nvml"
    for gpu in sorted(served, key=lambda gpu: gpu.minor or 0):
        if gpu.uuid not in modes:
            raise Unreadable(f"GPU {gpu.index} ({gpu.address}) is not in nvidia-smi's list")
        near = cores.get(home(gpu.node, nodes(host)), "")
        name = nvml_type(gpu.model) if detected else str(desired.get("type") or type_of(gpu.model))
        state = modes[gpu.uuid]
        if state.has("mig.mode.current") and state.value("mig.mode.current") == "Enabled":
            known += _instances(host, remembered, gpu, name, near)
        else:
            known.append(Device(name, (f"/dev/nvidia{gpu.minor}",), near))
    missing = [path for device in known for path in device.files if not host.exists(path)]
    if missing:
        raise Refused(f"{missing[0]} is missing, and slurmd does not start without it: start nvidia-persistenced first")
    return known


def _all_served(host: Host) -> list[Gpu]:
    unread: dict[str, str] = {}
    count = gpu_bus.count(host, unread)
    if count == 0:
        raise Unsupported("this host has no NVIDIA GPU")
    served = gpus(host)
    if count is None:
        raise Unreadable(f"the GPUs on the PCI bus are not known: {unread['on_bus']}")
    if not host.exists(FOLDER):
        raise Unreadable(f"{FOLDER} is missing: no NVIDIA driver is loaded")
    listed = len(host.listdir(FOLDER))
    if listed != count:
        raise Refused(f"the PCI bus has {count} GPUs, and the driver {listed}: a GPU is lost, see `gpuctl nodes`")
    if unnamed := [gpu for gpu in served if gpu.minor is None or not gpu.uuid]:
        raise Unreadable(f"GPU {unnamed[0].index} ({unnamed[0].address}) is not started yet: start nvidia-persistenced")
    return served


def type_of(model: str) -> str:
    """A model's type: h100 of "NVIDIA H100 80GB HBM3"."""
    text = model
    while _BRAND.match(text):
        text = _BRAND.sub("", text)
    match = _MODEL.match(text)
    word = re.sub(r"[^a-z0-9]+", "_", (match.group() if match else text).lower()).strip("_")
    if not re.search(r"[a-z]", word):
        raise Refused(f"the model {model!r} makes no type: set slurm_gres.type")
    return word


def nvml_type(model: str) -> str:
    """The type that slurmd with NVML gives a model: nvidia_h100_80gb_hbm3 of "NVIDIA H100 80GB HBM3"."""
    return model.lower().replace(" ", "_")


def _instances(host: Host, remembered: Host, gpu: Gpu, name: str, near: str) -> list[Device]:
    """MIG instances of a GPU; each needs the files of the GPU, of its GPU instance and of its compute instance."""
    folder = f"{CAPABILITIES}/gpu{gpu.minor}/mig"
    due = {f"gi{number}": profile for profile, number in mig_layout.gpu_instances(remembered, gpu.index)}
    made = sorted(entry for entry in host.listdir(folder) if re.fullmatch(r"gi\d+", entry))
    if not made:
        raise Refused(f"GPU {gpu.index} is in MIG mode and has no instance, so no job can use it: see gpu_settings.mig")
    if set(made) != set(due):
        raise Unreadable(f"{folder} has {', '.join(made)}, and nvidia-smi {', '.join(sorted(due)) or 'none'}")
    known = []
    for entry in sorted(made, key=lambda entry: int(entry[2:])):
        inner = [one for one in host.listdir(f"{folder}/{entry}") if re.fullmatch(r"ci\d+", one)]
        if len(inner) != 1:
            raise Refused(
                f"instance {entry[2:]} of GPU {gpu.index} has {len(inner)} compute instances: give it one, or set "
                "slurm_gres.autodetect to nvml"
            )
        caps = [_capability(host, f"{folder}/{entry}/access"), _capability(host, f"{folder}/{entry}/{inner[0]}/access")]
        kind = f"{name}_{due[entry].replace('+', '_')}"
        known.append(Device(kind, (f"/dev/nvidia{gpu.minor}", *caps), near))
    return known


def _capability(host: Host, path: str) -> str:
    match = _MINOR.search(host.read(path))
    if match is None:
        raise Unreadable(f"{path} names no DeviceFileMinor")
    return f"/dev/nvidia-caps/nvidia-cap{match[1]}"


def lines(known: list[Device]) -> str:
    """Lines of gres.conf; GPUs with files that follow each other, of one type and with the same cores, are one line."""
    rows: list[tuple[Device, list[int]]] = []
    for device in known:
        number = int(device.files[0][len("/dev/nvidia") :])
        if rows and len(device.files) == 1 and _continues(*rows[-1], device, number):
            rows[-1][1].append(number)
        else:
            rows.append((device, [number]))
    return "".join(_row(device, numbers) for device, numbers in rows)


def _continues(earlier: Device, numbers: list[int], device: Device, number: int) -> bool:
    same = (earlier.type, earlier.cores, len(earlier.files)) == (device.type, device.cores, 1)
    return same and number == numbers[-1] + 1


def _row(device: Device, numbers: list[int]) -> str:
    if len(device.files) > 1:
        files = f"MultipleFiles={','.join(device.files)}"
    else:
        files = f"File=/dev/nvidia{numbers[0] if len(numbers) == 1 else f'[{numbers[0]}-{numbers[-1]}]'}"
    return f"Name=gpu Type={device.type} {files}{f' Cores={device.cores}' if device.cores else ''}\n"


def counts(known: list[Device]) -> dict[str, int]:
    """Type -> number of devices."""
    return dict(Counter(device.type for device in known))


def near_cores(host: Host) -> dict[int | None, str]:
    """NUMA node -> Slurm's numbers of its cores; empty if one node has them all, as any core is then as near."""
    by_node = {number: set(cpus) for number, cpus in nodes(host).items() if cpus}
    if len(by_node) < 2:
        return {}
    numbers = core_numbers(host)
    return {node: as_list(numbers[cpu] for cpu in cpus if cpu in numbers) for node, cpus in by_node.items()}


def core_numbers(host: Host) -> dict[int, int]:
    """Processor -> logical number of its core, as hwloc and Slurm count: socket by socket, then the NUMA nodes and
    last-level caches inside it, each by its lowest processor.
    """
    by_node = {cpu: min(cpus) for cpus in nodes(host).values() if cpus for cpu in cpus}
    known: dict[int, tuple[int, int, int, int]] = {}
    sockets: dict[str, int] = {}
    for cpu in sorted(online(host)):
        base = f"{CPU}/cpu{cpu}"
        socket = host.value(f"{base}/topology/physical_package_id")
        siblings = host.value(f"{base}/topology/thread_siblings_list")
        if socket is None or not siblings:
            raise Unreadable(
                f"{base}/topology is missing, so the cores near the GPUs are not known: set cores to false"
            )
        cache = host.value(f"{base}/cache/index3/shared_cpu_list")
        lowest = sockets.setdefault(socket, cpu)
        known[cpu] = (lowest, by_node.get(cpu, 0), min(cpus_of(cache)) if cache else 0, min(cpus_of(siblings)))
    order = {core: number for number, core in enumerate(sorted(set(known.values())))}
    return {cpu: order[core] for cpu, core in known.items()}


def refuse_other_cores(host: Host, fields: Mapping[str, str]) -> None:
    """Refuse numbers of cores that slurmctld's definition of the node does not count alike; `fields`: as scontrol's."""
    numbers = Counter(core_numbers(host).values())
    due = (len(numbers), max(numbers.values(), default=1))
    try:
        defined = (int(fields["Sockets"]) * int(fields["CoresPerSocket"]), int(fields["ThreadsPerCore"]))
    except (KeyError, ValueError) as error:
        raise Unreadable(f"scontrol shows no {error} of the node: set cores to false") from error
    if defined != due:
        raise Refused(
            f"slurmctld counts {defined[0]} cores with {defined[1]} threads each, and the host has {due[0]} with "
            f"{due[1]}, so numbers of cores would be others: correct the node in slurm.conf, or set cores to false"
        )
