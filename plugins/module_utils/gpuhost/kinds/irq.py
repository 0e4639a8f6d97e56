"""Interrupts: those of NICs and GPUs pinned near their device, and irqbalance, which would move them, controlled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import irqbalance
from ..model import Conflict, Knob, Reading, Step, Unreadable, Unsupported
from ..pinning import POLICIES, Pinning, Vector, look
from ..snapshot import View
from ._at_boot import at_boot
from ._common import read_each, settled
from ._irqbalance import balance
from ._types import Type, Word

TYPES: dict[str, Type] = {"balance": Word(("off", "exact", "subset", "ignore")), "affinity": Word(POLICIES)}
ANY = "\0"  # no line holds it: every mention counts
OTHER_PINNERS = ("smp_affinity", "set_irq_affinity", "mlnx_affinity", "mlnx_tune")


def type_of(key: str) -> Type | None:
    """What values a key takes."""
    return TYPES.get(key)


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """Where interrupts go now and after a reboot, and who moves them."""
    wanted = {knob.key: str(knob.value) for knob in knobs}
    return read_each(view, knobs, lambda view, knob: _read(view, knob, wanted))


def _read(view: View, knob: Knob, wanted: Mapping[str, str]) -> Reading:
    if view.machine.machine == "container":
        raise Unsupported("a container has no interrupts of its own: set this on the machine it runs on")
    if knob.key == "balance":
        return balance(view, knob)
    return _affinity(view, knob, stays=wanted.get("balance") != "off")


def _affinity(view: View, knob: Knob, stays: bool) -> Reading:
    """`stays`: irqbalance is not switched off by the same profile."""
    found = look(view.host, str(knob.value))
    if not found.vectors:
        _explain_nothing(found)
    managed = [v for v in found.vectors if _setting(v) in view.refused]
    if found.vectors and len(managed) == len(found.vectors):
        raise Unsupported(f"the kernel manages all {len(managed)} interrupts itself")
    other = [v for v in found.vectors if v.now != v.wanted and v not in managed]
    moves = tuple(Step(_setting(v), v.now, v.wanted) for v in other)
    others = _rivals(view, str(knob.value), found, stays)
    boot, kept = at_boot(view, "irq.affinity", str(knob.value), others)
    return settled(
        knob,
        now=f"{len(other)} of {len(found.vectors)} interrupts elsewhere" if other else str(knob.value),
        boot=boot,
        steps=moves + kept,
        conflicts=tuple(others),
        disruptive="moves interrupts of running devices" if moves else "",
        notes=_notes(found, len(managed)),
    )


def _setting(vector: Vector) -> str:
    return f"irq:{vector.address}:{vector.vector}"


def _explain_nothing(found: Pinning) -> None:
    """Nothing can be pinned now: that is fine only where devices have merely not asked for interrupts yet."""
    if found.lost:
        raise Unreadable(f"the firmware does not say which NUMA node {_few(found.lost)} belong to (numa_node -1)")
    if not found.silent:
        raise Unsupported("there is no NIC and no NVIDIA GPU on this host's PCI bus")


def _notes(found: Pinning, managed: int) -> tuple[str, ...]:
    notes = []
    if found.lost:
        notes.append(f"left alone, for their NUMA node is unknown: {_few(found.lost)}")
    if found.silent:
        notes.append(f"no interrupts yet (no driver, link down, GPU not awake): {_few(found.silent)}")
    if managed:
        notes.append(f"{managed} of {len(found.vectors)} interrupts are the kernel's own and stay as they are")
    return tuple(notes)


def _few(addresses: Sequence[str]) -> str:
    return ", ".join(addresses[:8]) + (f" and {len(addresses) - 8} more" if len(addresses) > 8 else "")


def _rivals(view: View, wanted: str, found: Pinning, stays: bool) -> list[Conflict]:
    rivals = view.owners.mentions(ANY, *OTHER_PINNERS)
    rivals += view.owners.tuned_option("ignore", "default_irq_smp_affinity")
    return rivals + (_irqbalance(view, found) if stays else [])


def _irqbalance(view: View, found: Pinning) -> list[Conflict]:
    """irqbalance, where it runs or will run and has not been told to leave all of these interrupts alone."""
    on = irqbalance.switched_on(view.host)
    where = on or (irqbalance.RUNNING if irqbalance.runs(view.host) else "")
    if not where or {v.irq for v in found.vectors} <= irqbalance.banned(view.host):
        return []
    return [Conflict("irqbalance", where, "irqbalance moves them as it sees fit", wins=True)]
