"""Interrupt affinity: the interrupts of each NIC and GPU belong on processors of its own NUMA node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from .host import Host
from .topology import Device, as_list, cpus_of, devices, home, irqs, isolated, nodes

POLICIES = ("node", "spread")


class Vector(NamedTuple):
    """One interrupt: the device's n-th vector, its IRQ number, and its current and desired affinity."""

    address: str
    vector: int
    irq: int
    now: str
    desired: str

    @property
    def path(self) -> str:
        return affinity_of(self.irq)


class Pinning(NamedTuple):
    """The interrupts of a host's devices. Devices are named by their PCI addresses."""

    vectors: tuple[Vector, ...]
    lost: tuple[str, ...]  # devices of unknown NUMA node
    silent: tuple[str, ...]  # devices without interrupts yet: no driver, link down, GPU not started


def affinity_of(irq: int) -> str:
    """The file of an interrupt's affinity."""
    return f"/proc/irq/{irq}/smp_affinity_list"


def read_pinning(host: Host, policy: str) -> Pinning:
    """All interrupts of all NICs and GPUs, with the affinity that the policy gives them."""
    pci_devices = devices(host)
    near = nearest(pci_devices, nodes(host), isolated(host))
    interrupts = {device.address: _interrupts(host, device.address) for device in pci_devices}
    desired = desired_affinities({a: len(interrupts[a]) for a in near}, near, policy)
    return Pinning(
        tuple(Vector(a, n, irq, now, desired[a, n]) for a in near for n, irq, now in interrupts[a] if now is not None),
        tuple(device.address for device in pci_devices if device.address not in near),
        tuple(a for a, rows in interrupts.items() if all(now is None for _, _, now in rows)),
    )


def _interrupts(host: Host, address: str) -> list[tuple[int, int, str | None]]:
    """(vector, IRQ, affinity); affinity is None while no driver uses the interrupt."""
    rows = []
    for vector, irq in enumerate(irqs(host, address)):
        text = host.value(affinity_of(irq))
        rows.append((vector, irq, None if text is None else _normal(text)))
    return rows


@cache
def _normal(text: str) -> str:
    """A kernel list in its shortest form; cached, as hundreds of interrupts share a few."""
    return as_list(cpus_of(text))


def nearest(
    pci_devices: Sequence[Device], on: Mapping[int, Sequence[int]], isolated: set[int]
) -> dict[str, tuple[int, ...]]:
    """Device -> the processors of its node; isolated ones only if the node has no others."""
    cpus = {node: tuple(c for c in cpus if c not in isolated) or tuple(cpus) for node, cpus in on.items()}
    homes = {device.address: home(device.node, cpus) for device in pci_devices}
    return {address: cpus[node] for address, node in homes.items() if node is not None}


def desired_affinities(
    vectors: Mapping[str, int], near: Mapping[str, tuple[int, ...]], policy: str
) -> dict[tuple[str, int], str]:
    """(device, vector) -> desired affinity.

    "node": any processor of the device's node, the kernel chooses; "spread": one processor each, in turn.
    """
    desired = {}
    everywhere = {cpus: as_list(cpus) for cpus in set(near.values())}
    turns = dict.fromkeys(everywhere, 0)
    for address, count in vectors.items():
        cpus = near[address]
        for vector in range(count):
            desired[address, vector] = str(cpus[turns[cpus] % len(cpus)]) if policy == "spread" else everywhere[cpus]
            turns[cpus] += 1
    return desired
