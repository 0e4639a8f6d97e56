"""The rig's machines have the layout of recorded ones; addresses and names are the rig's own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.rig import machines
from tests.rig.machines.model import BRIDGE, GPU, Device, Gpu
from tests.rig.numbers import from_list, from_mask
from tests.rig.recordings import recording

Element = ElementTree.Element
Ids = tuple[str, str, str, int]


@pytest.mark.parametrize("name", machines.NAMES)
def test_addresses_names_and_cpu_numbers_are_unique(name: str) -> None:
    machine = machines.machine(name)
    devices = machine.devices
    names = [name for device in devices for name in (device.net, device.rdma, device.block) if name]
    assert len({device.address for device in devices}) == len(devices)
    assert len(set(names)) == len(names)
    assert len({gpu.uuid for gpu in gpus(devices)}) == len({gpu.minor for gpu in gpus(devices)}) == len(gpus(devices))
    assert len({cpu.number for cpu in machine.cpus}) == len(machine.cpus)
    assert set(machine.distances) == set(machine.memory_kib)


def gpus(devices: Sequence[Device]) -> list[Gpu]:
    return [device.gpu for device in devices if device.gpu]


def test_each_bridge_of_the_p5_has_the_recorded_devices() -> None:
    bridges = ElementTree.parse(recording("host/nccl_topo_aws_p5.xml")).findall("cpu/pci")  # noqa: S314 our own file
    recorded = [[pci.attrib["class"] for pci in bridge.findall("pci")] for bridge in bridges]
    assert {bridge.attrib["class"] for bridge in bridges} == {BRIDGE}
    ours: list[list[str]] = []
    for device in machines.machine("p5").devices[:-1]:  # the last is a disk
        if device.pci_class == BRIDGE:
            ours.append([])
        else:
            ours[-1].append(device.pci_class)
    assert ours == recorded
    assert all(device.rdma for device in machines.machine("p5").devices if device.device == "0xefa2")


def test_the_g4dn_metal_has_the_recorded_cpus_nodes_and_devices() -> None:
    top = ElementTree.parse(recording("host/lstopo_aws_g4dn_metal.xml")).getroot()  # noqa: S314 our own file
    machine = machines.machine("g4dn_metal")
    packages = [part for part in top.iter("object") if part.attrib["type"] == "Package"]
    cores = [core for package in packages for core in package.iter("object") if core.attrib["type"] == "Core"]
    threads = {cpu: set(from_mask(core.attrib["cpuset"])) for core in cores for cpu in from_mask(core.attrib["cpuset"])}
    node = {cpu: min(from_mask(core.attrib["nodeset"])) for core in cores for cpu in from_mask(core.attrib["cpuset"])}
    assert {cpu.number: cpu.node for cpu in machine.cpus} == node
    siblings = {
        cpu.number: {other.number for other in machine.cpus if (other.package, other.core) == (cpu.package, cpu.core)}
        for cpu in machine.cpus
    }
    assert siblings == threads
    assert Counter(ids(device) for device in machine.devices) == Counter(recorded_ids(packages))
    distances = [value for node in sorted(machine.distances) for value in machine.distances[node]]
    assert distances == [int(value) for value in top.findtext("distances2/u64values", "").split()]


def ids(device: Device) -> Ids:
    return device.pci_class[:6], device.vendor, device.device, device.node


def recorded_ids(packages: list[Element]) -> Iterator[Ids]:
    for package in packages:
        for part in package.iter("object"):
            if part.attrib["type"] == "PCIDev":
                pci_class, vendor_and_device = part.attrib["pci_type"].split()[:2]
                vendor, device = vendor_and_device.strip("[]").split(":")
                yield f"0x{pci_class}", f"0x{vendor}", f"0x{device}", min(from_mask(package.attrib["nodeset"]))


def test_the_power9_has_the_recorded_nodes_and_gpus() -> None:
    machine = machines.machine("power9")
    folder = recording("host/sysfs_power9_v100_gpunuma") / "sys/devices/system/node"
    nodes = sorted(from_list((folder / "online").read_text().strip()))
    assert sorted(machine.memory_kib) == nodes
    for node in nodes:
        cpus = [cpu.number for cpu in machine.cpus if cpu.node == node]
        assert cpus == sorted(from_list((folder / f"node{node}/cpulist").read_text().strip()))
        assert list(machine.distances[node]) == [int(n) for n in (folder / f"node{node}/distance").read_text().split()]
        assert machine.memory_kib[node] == pytest.approx(memory_kib(folder / f"node{node}/meminfo"), rel=0.01)
    text = recording("host/lstopo_power9_nvgpunumanodes.console.txt").read_text()
    sockets = re.split(r"Package L#\d+ \(P#", text)[1:]
    recorded = {int(socket.split()[0]): socket.count("PCI L#") for socket in sockets}
    assert Counter(device.node for device in machine.devices if device.pci_class == GPU) == recorded


def memory_kib(meminfo: Path) -> int:
    match = re.search(r"MemTotal:\s+(\d+) kB", meminfo.read_text())
    assert match
    return int(match[1])
