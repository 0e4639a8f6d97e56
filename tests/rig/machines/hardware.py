"""The files that describe a machine's processors, NUMA nodes, PCI devices and interrupts."""

from __future__ import annotations

from itertools import count

from tests.rig.knobs import Affinity, Enum, Int, Knob, Link, Preference, ReadOnly, View
from tests.rig.machines.model import Cpu, Device, Machine
from tests.rig.numbers import as_list, as_mask

Files = dict[str, Knob | Link]

CPU, NODE, PCI = "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/bus/pci"
ENERGY_BIAS_WORDS = {"performance": 0, "balance-performance": 4, "normal": 6, "balance-power": 8, "power": 15}
FIRST_IRQ = 40
# Interrupts every PC has, which belong to no PCI device.
BOARD_IRQS = {0: "timer", 8: "rtc0", 9: "acpi"}


def files(machine: Machine) -> Files:
    """Every file that tells what the machine is made of."""
    return {**_cpus(machine), **_nodes(machine), **_devices(machine)}


def _cpus(machine: Machine) -> Files:
    every = ReadOnly(as_list(cpu.number for cpu in machine.cpus))
    found: Files = {f"{CPU}/{name}": every for name in ("online", "possible", "present")}
    found[f"{CPU}/offline"] = ReadOnly("")
    found[f"{CPU}/kernel_max"] = ReadOnly("8191")
    found[f"{CPU}/smt/control"] = Enum("on", ("on", "off", "forceoff"))
    found[f"{CPU}/smt/active"] = ReadOnly("1")
    found[f"{CPU}/cpuidle/current_driver"] = ReadOnly(machine.idle_driver)
    if machine.frequency:
        # no_turbo and boost say the same thing the other way round.
        found[f"{CPU}/{machine.frequency.boost}"] = Int(0 if "no_turbo" in machine.frequency.boost else 1, 0, 1)
    for cpu in machine.cpus:
        found.update(_cpu(machine, cpu))
    found["/proc/cpuinfo"] = View(lambda: _cpuinfo(machine))
    return found


def _cpu(machine: Machine, cpu: Cpu) -> Files:
    folder = f"{CPU}/cpu{cpu.number}"
    found: Files = {f"{folder}/node{cpu.node}": Link(f"../../node/node{cpu.node}")}
    found.update(_topology(machine, cpu, f"{folder}/topology"))
    if machine.frequency:
        found.update(_frequency(machine, cpu))
    if machine.energy_bias is not None:
        found[f"{folder}/power/energy_perf_bias"] = Int(machine.energy_bias, 0, 15, words=ENERGY_BIAS_WORDS)
    for number, state in enumerate(machine.idle):
        found[f"{folder}/cpuidle/state{number}/name"] = ReadOnly(state.name)
        found[f"{folder}/cpuidle/state{number}/latency"] = ReadOnly(str(state.latency_us))
        found[f"{folder}/cpuidle/state{number}/residency"] = ReadOnly(str(state.latency_us * 3))
        found[f"{folder}/cpuidle/state{number}/disable"] = Int(0, 0, 1)
    return found


def _topology(machine: Machine, cpu: Cpu, folder: str) -> Files:
    package = [c for c in machine.cpus if c.package == cpu.package]
    width = max(c.number for c in machine.cpus) + 1
    sets = {"core": [c.number for c in package], "thread": [c.number for c in package if c.core == cpu.core]}
    found: Files = {
        f"{folder}/physical_package_id": ReadOnly(str(cpu.package)),
        f"{folder}/core_id": ReadOnly(str(cpu.core)),
    }
    for name, numbers in sets.items():
        found[f"{folder}/{name}_siblings"] = ReadOnly(as_mask(numbers, width))
        found[f"{folder}/{name}_siblings_list"] = ReadOnly(as_list(numbers))
    return found


def _frequency(machine: Machine, cpu: Cpu) -> Files:
    assert machine.frequency
    policy = f"{CPU}/cpufreq/policy{cpu.number}"
    governor = Enum(machine.frequency.governor, machine.frequency.governors)
    found: Files = {
        f"{CPU}/cpu{cpu.number}/cpufreq": Link(f"../cpufreq/policy{cpu.number}"),
        f"{policy}/scaling_governor": governor,
        f"{policy}/scaling_available_governors": ReadOnly(" ".join(machine.frequency.governors)),
        f"{policy}/scaling_driver": ReadOnly(machine.frequency.driver),
        f"{policy}/scaling_min_freq": Int(800000, 800000, 3200000),
        f"{policy}/scaling_max_freq": Int(3200000, 800000, 3200000),
        f"{policy}/cpuinfo_min_freq": ReadOnly("800000"),
        f"{policy}/cpuinfo_max_freq": ReadOnly("3200000"),
        f"{policy}/affected_cpus": ReadOnly(str(cpu.number)),
    }
    if machine.frequency.preference:
        preference = Preference(governor, machine.frequency.preference)
        found[f"{policy}/energy_performance_preference"] = preference.knob()
        found[f"{policy}/energy_performance_available_preferences"] = ReadOnly(" ".join(Preference.WORDS))
    return found


def _cpuinfo(machine: Machine) -> str:
    flags = "fpu tsc msr sse2 constant_tsc" + (" hypervisor" if machine.virtual else "")
    return "\n\n".join(
        f"processor\t: {cpu.number}\nmodel name\t: {machine.cpu_model}\nphysical id\t: {cpu.package}\n"
        f"core id\t\t: {cpu.core}\nflags\t\t: {flags}"
        for cpu in machine.cpus
    )


def _nodes(machine: Machine) -> Files:
    nodes = sorted(machine.memory_kib)
    cpus = {node: [cpu.number for cpu in machine.cpus if cpu.node == node] for node in nodes}
    every, width = ReadOnly(as_list(nodes)), max(cpu.number for cpu in machine.cpus) + 1
    found: Files = {f"{NODE}/{name}": every for name in ("online", "possible", "has_memory")}
    found[f"{NODE}/has_cpu"] = ReadOnly(as_list(node for node in nodes if cpus[node]))
    for node in nodes:
        folder = f"{NODE}/node{node}"
        found[f"{folder}/cpulist"] = ReadOnly(as_list(cpus[node]))
        found[f"{folder}/cpumap"] = ReadOnly(as_mask(cpus[node], width))
        found[f"{folder}/distance"] = ReadOnly(" ".join(map(str, machine.distances[node])))
        found[f"{folder}/meminfo"] = ReadOnly(f"Node {node} MemTotal:       {machine.memory_kib[node]} kB")
        found.update({f"{folder}/cpu{n}": Link(f"../../cpu/cpu{n}") for n in cpus[node]})
    return found


def _devices(machine: Machine) -> Files:
    # The host's own loopback and network card are real ones, unless the machine has one of that name.
    own = {"lo", "eth0"} - {device.net for device in machine.devices}
    found: Files = {f"/sys/class/net/{name}": Link(f"../../devices/virtual/net/{name}") for name in sorted(own)}
    numbers = count(FIRST_IRQ)
    rows = [(number, name, "IO-APIC", -1, False) for number, name in BOARD_IRQS.items()]
    for device in machine.devices:
        irqs = [next(numbers) for _ in range(device.vectors)]
        rows += [
            (n, f"{device.driver}-{i}", f"PCI-MSIX-{device.address}", device.node, device.managed)
            for i, n in enumerate(irqs)
        ]
        found.update(_pci(machine, device, irqs))
        found.update(_classes(device))
        if device.gpu:
            found[f"/proc/driver/nvidia/gpus/{device.address}/information"] = ReadOnly(_information(device, irqs[0]))
    for number, *_, node, managed in rows:
        found.update(_irq(machine, number, node, managed))
    found["/proc/interrupts"] = View(lambda: _interrupts(machine, [(row[0], row[1], row[2]) for row in rows]))
    found["/proc/irq/default_smp_affinity"] = Knob(as_mask((c.number for c in machine.cpus), len(machine.cpus)))
    return found


def _pci(machine: Machine, device: Device, irqs: list[int]) -> Files:
    folder = f"{PCI}/devices/{device.address}"
    local = [cpu.number for cpu in machine.cpus if device.node in (-1, cpu.node)]
    found: Files = {
        f"{folder}/class": ReadOnly(device.pci_class),
        f"{folder}/vendor": ReadOnly(device.vendor),
        f"{folder}/device": ReadOnly(device.device),
        f"{folder}/numa_node": ReadOnly(str(device.node)),
        f"{folder}/local_cpulist": ReadOnly(as_list(local)),
        f"{folder}/irq": ReadOnly(str(irqs[0] if irqs else 0)),
    }
    found.update({f"{folder}/msi_irqs/{number}": ReadOnly("msix") for number in irqs})
    if device.driver:
        found[f"{folder}/driver"] = Link(f"../../drivers/{device.driver}")
        found[f"{PCI}/drivers/{device.driver}/{device.address}"] = Link(f"../../devices/{device.address}")
    return found


def _classes(device: Device) -> Files:
    """How a network card shows up among the network and RDMA devices."""
    found: Files = {}
    up = f"../../../bus/pci/devices/{device.address}"
    if device.net:
        found[f"/sys/class/net/{device.net}/device"] = Link(up)
        found[f"/sys/class/net/{device.net}/operstate"] = ReadOnly("up")
        found[f"/sys/class/net/{device.net}/mtu"] = Int(1500, 68, 9000)
    if device.rdma:
        port = f"/sys/class/infiniband/{device.rdma}/ports/1"
        found[f"/sys/class/infiniband/{device.rdma}/device"] = Link(up)
        found[f"{port}/state"] = ReadOnly("4: ACTIVE")
        found[f"{port}/link_layer"] = ReadOnly("InfiniBand" if device.pci_class == "0x020700" else "Ethernet")
        if device.driver == "efa":
            found[f"{port}/link_layer"] = ReadOnly("Unspecified")
    return found


def _information(device: Device, irq: int) -> str:
    assert device.gpu
    return (
        f"Model: \t\t {device.gpu.model}\nIRQ:   \t\t {irq}\nGPU UUID: \t {device.gpu.uuid}\nBus Type: \t PCIe\n"
        f"DMA Size: \t 52 bits\nBus Location: \t {device.address}\nDevice Minor: \t {device.gpu.minor}\n"
        "GPU Excluded:\t No"
    )


def _irq(machine: Machine, number: int, node: int, managed: bool) -> Files:
    online = [cpu.number for cpu in machine.cpus]
    start = [cpu.number for cpu in machine.cpus if node in (-1, cpu.node)] if managed else online
    found: Files = {
        f"/proc/irq/{number}/{name}": knob for name, knob in Affinity(start, online, managed).knobs().items()
    }
    found[f"/proc/irq/{number}/node"] = ReadOnly(str(node))
    return found


def _interrupts(machine: Machine, rows: list[tuple[int, str, str]]) -> str:
    head = " " * 5 + "".join(f"{'CPU' + str(cpu.number):>11}" for cpu in machine.cpus)
    idle = "".join(f"{0:>11}" for _ in machine.cpus)
    return "\n".join([head, *(f"{number:>4}:{idle}  {chip}  edge  {name}" for number, name, chip in rows)])
