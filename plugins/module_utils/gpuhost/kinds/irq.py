"""Interrupts: affinity of NIC and GPU interrupts, and irqbalance, which would move them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import irqbalance
from ..model import Conflict, Knob, Reading, Step, Unreadable, Unsupported
from ..pinning import POLICIES, Pinning, Vector, read_pinning
from ..snapshot import HostSnapshot
from ._at_boot import at_boot
from ._common import read_all, settled
from ._irqbalance import balance
from ._types import OneOf, Type

TYPES: dict[str, Type] = {"balance": OneOf(("off", "exact", "subset", "ignore")), "affinity": OneOf(POLICIES)}
ANY = "\0"  # matches no line, so every mention conflicts
OTHER_PINNERS = ("smp_affinity", "set_irq_affinity", "mlnx_affinity", "mlnx_tune")


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return TYPES.get(key)


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Affinities now and after a reboot, and other owners that change them."""
    desired = {knob.key: str(knob.value) for knob in knobs}
    return read_all(snapshot, knobs, lambda snapshot, knob: _read(snapshot, knob, desired))


def _read(snapshot: HostSnapshot, knob: Knob, desired: Mapping[str, str]) -> Reading:
    if snapshot.machine.machine == "container":
        raise Unsupported("a container has no interrupts of its own: set this on the machine it runs on")
    if knob.key == "balance":
        return balance(snapshot, knob)
    return _affinity(snapshot, knob, stays=desired.get("balance") != "off")


def _affinity(snapshot: HostSnapshot, knob: Knob, stays: bool) -> Reading:
    """`stays`: the profile does not stop irqbalance."""
    pinning = read_pinning(snapshot.host, str(knob.value))
    if not pinning.vectors:
        _raise_if_no_device(pinning)
    managed = [v for v in pinning.vectors if _setting(v) in snapshot.refused]
    if pinning.vectors and len(managed) == len(pinning.vectors):
        raise Unsupported(f"the kernel manages all {len(managed)} interrupts itself")
    other = [v for v in pinning.vectors if v.now != v.desired and v not in managed]
    moves = tuple(Step(_setting(v), v.now, v.desired) for v in other)
    others = _rivals(snapshot, str(knob.value), pinning, stays)
    boot, kept = at_boot(snapshot, "irq.affinity", str(knob.value), others)
    return settled(
        knob,
        now=f"{len(other)} of {len(pinning.vectors)} interrupts elsewhere" if other else str(knob.value),
        boot=boot,
        steps=moves + kept,
        conflicts=tuple(others),
        disruptive="moves interrupts of running devices" if moves else "",
        notes=_notes(pinning, len(managed)),
    )


def _setting(vector: Vector) -> str:
    return f"irq:{vector.address}:{vector.vector}"


def _raise_if_no_device(pinning: Pinning) -> None:
    """Raise unless devices exist that just have no interrupts yet."""
    if pinning.lost:
        raise Unreadable(f"the firmware does not say which NUMA node {_few(pinning.lost)} belong to (numa_node -1)")
    if not pinning.silent:
        raise Unsupported("there is no NIC and no NVIDIA GPU on this host's PCI bus")


def _notes(pinning: Pinning, managed: int) -> tuple[str, ...]:
    notes = []
    if pinning.lost:
        notes.append(f"left alone, as their NUMA node is unknown: {_few(pinning.lost)}")
    if pinning.silent:
        notes.append(f"no interrupts yet (no driver, link down, GPU not awake): {_few(pinning.silent)}")
    if managed:
        notes.append(f"{managed} of {len(pinning.vectors)} interrupts are the kernel's own and stay as they are")
    return tuple(notes)


def _few(addresses: Sequence[str]) -> str:
    return ", ".join(addresses[:8]) + (f" and {len(addresses) - 8} more" if len(addresses) > 8 else "")


def _rivals(snapshot: HostSnapshot, desired: str, pinning: Pinning, stays: bool) -> list[Conflict]:
    rivals = snapshot.owners.mentions(ANY, *OTHER_PINNERS)
    rivals += snapshot.owners.tuned_option("ignore", "default_irq_smp_affinity")
    return rivals + (_irqbalance(snapshot, pinning) if stays else [])


def _irqbalance(snapshot: HostSnapshot, pinning: Pinning) -> list[Conflict]:
    """irqbalance, if it runs now or at boot, and is not configured to exclude all of these interrupts."""
    on = irqbalance.switched_on(snapshot.host)
    where = on or (irqbalance.RUNNING if irqbalance.runs(snapshot.host) else "")
    if not where or {v.irq for v in pinning.vectors} <= irqbalance.banned(snapshot.host):
        return []
    return [Conflict("irqbalance", where, "irqbalance moves them as it sees fit", wins=True)]
