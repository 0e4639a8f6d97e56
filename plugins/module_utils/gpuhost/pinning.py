"""Where the interrupts of each NIC and GPU belong: on processors of the device's own NUMA node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from .host import Host
from .topology import Device, as_list, cpus_of, devices, home, irqs, isolated, nodes

POLICIES = ("node", "spread")


class Vector(NamedTuple):
    """One interrupt: the device's n-th vector, its number since this boot, where it may go now and where it shall."""

    address: str
    vector: int
    irq: int
    now: str
    wanted: str

    @property
    def path(self) -> str:
        return affinity_of(self.irq)


class Pinning(NamedTuple):
    """What a look at the host found. Devices are named by their PCI addresses."""

    vectors: tuple[Vector, ...]
    lost: tuple[str, ...]  # their NUMA node cannot be known
    silent: tuple[str, ...]  # no interrupt yet: no driver, a link that is down, a GPU that nothing keeps awake


def affinity_of(irq: int) -> str:
    """The file that says where an interrupt may go."""
    return f"/proc/irq/{irq}/smp_affinity_list"


def look(host: Host, policy: str) -> Pinning:
    """Every interrupt of every NIC and GPU, with the processors that the policy gives it."""
    found = devices(host)
    near = nearest(found, nodes(host), isolated(host))
    there = {device.address: _interrupts(host, device.address) for device in found}
    wanted = wanted_affinities({a: len(there[a]) for a in near}, near, policy)
    return Pinning(
        tuple(Vector(a, n, irq, now, wanted[a, n]) for a in near for n, irq, now in there[a] if now is not None),
        tuple(device.address for device in found if device.address not in near),
        tuple(a for a, interrupts in there.items() if all(now is None for _, _, now in interrupts)),
    )


def _interrupts(host: Host, address: str) -> list[tuple[int, int, str | None]]:
    """(vector, IRQ, where it may go); the last is None while no driver has asked for the interrupt."""
    rows = []
    for vector, irq in enumerate(irqs(host, address)):
        text = host.value(affinity_of(irq))
        rows.append((vector, irq, None if text is None else _normal(text)))
    return rows


@cache
def _normal(text: str) -> str:
    """A kernel list in its shortest writing. Hundreds of interrupts hold the same few."""
    return as_list(cpus_of(text))


def nearest(found: Sequence[Device], on: Mapping[int, Sequence[int]], isolated: set[int]) -> dict[str, tuple[int, ...]]:
    """Device -> the processors of its node; isolated ones only where the node has no others."""
    cpus = {node: tuple(c for c in cpus if c not in isolated) or tuple(cpus) for node, cpus in on.items()}
    homes = {device.address: home(device.node, cpus) for device in found}
    return {address: cpus[node] for address, node in homes.items() if node is not None}


def wanted_affinities(
    vectors: Mapping[str, int], near: Mapping[str, tuple[int, ...]], policy: str
) -> dict[tuple[str, int], str]:
    """(device, vector) -> the processors its interrupt shall go to.

    "node": any of the device's node, the kernel chooses; "spread": one each, in turn over the node.
    """
    wanted = {}
    everywhere = {cpus: as_list(cpus) for cpus in set(near.values())}
    turns = dict.fromkeys(everywhere, 0)
    for address, count in vectors.items():
        cpus = near[address]
        for vector in range(count):
            wanted[address, vector] = str(cpus[turns[cpus] % len(cpus)]) if policy == "spread" else everywhere[cpus]
            turns[cpus] += 1
    return wanted
