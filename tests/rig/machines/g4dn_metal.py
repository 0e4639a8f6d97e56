"""An AWS g4dn.metal (8 T4, EFA, ENA) after lstopo_aws_g4dn_metal.xml.

Recorded: CPUs, cores, packages, NUMA nodes with memory and distances, every PCI device with its ids and node, GPU
models and UUIDs, names of network, RDMA and block devices. Inferred: drivers, interrupts, idle states, frequency files.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from xml.etree import ElementTree

from tests.rig.machines.model import Cpu, Device, Frequency, Gpu, Idle, Machine
from tests.rig.machines.recorded import recording
from tests.rig.numbers import from_mask

Element = ElementTree.Element
# What lstopo calls its kinds of operating system devices.
BLOCK, NET, RDMA = "0", "2", "3"
# PCI class (its first two bytes) -> driver, interrupts, whether the kernel manages them.
USES = {"0302": ("nvidia", 1, False), "0108": ("nvme", 4, True), "0200": ("ena", 8, False), "0106": ("ahci", 1, False)}


def machine() -> Machine:
    top = ElementTree.parse(recording("lstopo_aws_g4dn_metal.xml")).getroot()  # noqa: S314 a file of this tree
    said = {info.attrib["name"]: info.attrib["value"] for info in top.findall("object/info")}
    nodes = [o for o in top.iter("object") if o.attrib["type"] == "NUMANode"]
    return Machine(
        name="g4dn_metal",
        vendor=said["DMISysVendor"],
        product=said["DMIProductName"],
        cpu_model=next(i.attrib["value"] for i in top.iter("info") if i.attrib["name"] == "CPUModel"),
        cpus=sorted(_cpus(top), key=lambda cpu: cpu.number),
        memory_kib={int(n.attrib["os_index"]): int(n.attrib["local_memory"]) // 1024 for n in nodes},
        distances=_distances(top),
        devices=sorted(_devices(top), key=lambda device: device.address),
        frequency=Frequency("intel_pstate", "powersave", ("performance", "powersave"), "intel_pstate/no_turbo"),
        energy_bias=6,
        idle_driver="intel_idle",
        idle=(Idle("POLL", 0), Idle("C1", 2), Idle("C1E", 10), Idle("C6", 133)),
        thp="[always] madvise never",
        disks=(),
    )


def _packages(top: Element) -> list[Element]:
    return [o for o in top.iter("object") if o.attrib["type"] == "Package"]


def _cpus(top: Element) -> Iterator[Cpu]:
    for package in _packages(top):
        for core in package.iter("object"):
            if core.attrib["type"] == "Core":
                node = min(from_mask(core.attrib["nodeset"]))
                for cpu in from_mask(core.attrib["cpuset"]):
                    yield Cpu(cpu, int(core.attrib["os_index"]), int(package.attrib["os_index"]), node)


def _distances(top: Element) -> dict[int, list[int]]:
    matrix = top.find("distances2")
    assert matrix is not None, "the recording has no distances"
    nodes = [int(n) for n in matrix.findtext("indexes", "").split()]
    values = [int(v) for v in matrix.findtext("u64values", "").split()]
    return {node: values[i * len(nodes) :][: len(nodes)] for i, node in enumerate(nodes)}


def _devices(top: Element) -> Iterator[Device]:
    minors = count()
    for package in _packages(top):
        node = min(from_mask(package.attrib["nodeset"]))
        for found in package.iter("object"):
            if found.attrib["type"] == "PCIDev":
                yield _device(found, node, minors)


def _device(found: Element, node: int, minors: Iterator[int]) -> Device:
    pci_class, ids = found.attrib["pci_type"].split()[:2]
    vendor, device = ids.strip("[]").split(":")
    names = {o.attrib["osdev_type"]: o.attrib["name"] for o in found.iter("object") if o.attrib["type"] == "OSDev"}
    said = {i.attrib["name"]: i.attrib["value"] for i in found.iter("info")}
    gpu = Gpu(said["GPUModel"], said["NVIDIAUUID"], next(minors)) if "NVIDIAUUID" in said else None
    driver, vectors, managed = USES.get(pci_class, ("", 0, False))
    return Device(
        found.attrib["pci_busid"],
        f"0x{pci_class}00",
        f"0x{vendor}",
        f"0x{device}",
        node,
        "efa" if RDMA in names else driver,
        vectors,
        managed,
        gpu,
        names.get(NET, ""),
        names.get(RDMA, ""),
        names.get(BLOCK, ""),
    )
