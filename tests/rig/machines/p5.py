"""An AWS p5.48xlarge after nccl_topo_aws_p5.xml: which GPUs and EFA devices sit behind which PCI bridge.

Recorded: addresses, classes, link tree, names of the RDMA devices. Inferred: the second NUMA node (the recording puts
everything on the first; half of the bridges goes to each here), 192 CPUs, device ids, drivers, interrupts, idle states,
the NVMe disk, GPU UUIDs; a guest has no cpufreq.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import count
from xml.etree import ElementTree

from tests.rig.machines.model import GPU, NVME, Device, Gpu, Idle, Machine, two_threads_a_core
from tests.rig.machines.recorded import recording

AMAZON, NVIDIA = "0x1d0f", "0x10de"


def machine() -> Machine:
    bridges = ElementTree.parse(recording("nccl_topo_aws_p5.xml")).findall("cpu/pci")  # noqa: S314 a file of this tree
    return Machine(
        name="p5",
        vendor="Amazon EC2",
        product="p5.48xlarge",
        cpu_model="AMD EPYC 7R13 Processor",
        cpus=two_threads_a_core(cores=96, nodes=2),
        memory_kib={0: 1_073_000_000, 1: 1_073_000_000},
        distances={0: [10, 32], 1: [32, 10]},
        devices=sorted(_devices(bridges), key=lambda device: device.address),
        virtual=True,
        idle_driver="acpi_idle",
        idle=(Idle("POLL", 0), Idle("C1", 1), Idle("C2", 800)),
        disks=(),
        cmdline="BOOT_IMAGE=/boot/vmlinuz-6.8.0-1018-aws root=PARTUUID=0b5c ro console=tty1 console=ttyS0",
    )


def _devices(bridges: list[ElementTree.Element]) -> Iterator[Device]:
    minors = count()
    for index, bridge in enumerate(bridges):
        node = index * 2 // len(bridges)
        yield Device(bridge.attrib["busid"], bridge.attrib["class"], AMAZON, "0x0200", node, "pcieport")
        for pci in bridge.findall("pci"):
            yield _gpu(pci, node, next(minors)) if pci.attrib["class"] == GPU else _efa(pci, node)
    yield Device("0000:cb:00.0", NVME, AMAZON, "0xcd01", 1, "nvme", 4, managed=True, block="nvme0n1")


def _gpu(pci: ElementTree.Element, node: int, minor: int) -> Device:
    address = pci.attrib["busid"]
    gpu = Gpu("NVIDIA H100 80GB HBM3", f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, address)}", minor)
    return Device(address, pci.attrib["class"], NVIDIA, "0x2330", node, "nvidia", 1, gpu=gpu)


def _efa(pci: ElementTree.Element, node: int) -> Device:
    net = pci.find("nic/net")
    assert net is not None, f"no name recorded for {pci.attrib}"
    return Device(pci.attrib["busid"], pci.attrib["class"], AMAZON, "0xefa2", node, "efa", 3, rdma=net.attrib["name"])
