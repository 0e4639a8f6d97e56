"""Settings of NVIDIA GPUs: persistence, clocks, power limit, ECC, compute mode, MIG and MPS.

No file keeps most of them: gpuctl-gpu.service sets them again at boot and when the driver is loaded again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from .. import clock_locks, smi
from ..gpu_boot import MODES
from ..model import OK, Knob, Reading, Refused, Step, Unsupported
from ..resources.line import GPU_BOOT
from ..snapshot import HostSnapshot
from . import _gpu_mig, _gpu_mps, _gpu_owners, _gpu_persistence
from ._at_boot import at_boot
from ._common import read_all, settled
from ._gpu_types import ClockRange, MigLayouts, MpsDaemons
from ._types import Int, OneOf, Type

TYPES: dict[str, Type] = {
    "persistence": OneOf(("on", "off")),
    "ecc": OneOf(("on", "off")),
    "mig": MigLayouts(),
    "power_limit": Int(1, 10000),
    "graphics_clock": ClockRange(),
    "memory_clock": ClockRange(),
    "compute_mode": OneOf(tuple(MODES)),
    "mps": MpsDaemons(),
}
LEFT_BEHIND = "EXCLUSIVE_PROCESS was left behind: no MPS daemon runs, so every second process on the GPU fails"


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return TYPES.get(key)


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Values of all GPUs of the host, by one answer of nvidia-smi."""
    by_name = {knob.name: knob for knob in knobs}
    return read_all(snapshot, knobs, lambda snapshot, knob: _read(snapshot, knob, by_name))


def _read(snapshot: HostSnapshot, knob: Knob, knobs: Mapping[str, Knob]) -> Reading:
    if snapshot.machine.machine == "container":
        raise Unsupported("GPUs belong to the machine under this container: set this there")
    if knob.key == "mig":
        return _gpu_mig.read(snapshot, knob)
    if knob.key == "mps":
        return _gpu_mps.read(snapshot, knob)
    gpus = smi.gpus(snapshot.unchanging)
    if knob.key == "persistence":
        return _gpu_persistence.read(snapshot, knob, gpus)
    return READERS[knob.key](snapshot, knob, gpus, knobs)


def _power(snapshot: HostSnapshot, knob: Knob, gpus: Sequence[smi.GpuState], knobs: Mapping[str, Knob]) -> Reading:
    for gpu in gpus:
        low, high = gpu.number("power.min_limit"), gpu.number("power.max_limit")
        if not low <= int(knob.value) <= high:
            raise Refused(f"GPU {gpu.index} ({gpu.name}) takes a power limit from {low} to {high} W, not {knob.value}")
    _refuse_without_persistence(gpus, knobs)
    now = {gpu.uuid: str(gpu.number("power.limit")) for gpu in gpus}
    return _kept(snapshot, knob, now, knob.value, (knob.value, f"{knob.value}.00"))


def _clock(snapshot: HostSnapshot, knob: Knob, gpus: Sequence[smi.GpuState], knobs: Mapping[str, Knob]) -> Reading:
    highest = int(knob.value.partition(",")[2])
    for gpu in gpus:
        maximum = gpu.number(clock_locks.MAXIMUM[knob.key])
        if highest > maximum:
            raise Refused(f"the {knob.key.replace('_', ' ')} of GPU {gpu.index} ({gpu.name}) ends at {maximum} MHz")
    _refuse_without_persistence(gpus, knobs)
    now = {gpu.uuid: clock_locks.read(snapshot.host, gpu, knob.key) for gpu in gpus}
    spelt = (knob.value, knob.value.partition(",")[0])
    notes = ("drivers do not show locked clocks: gpuctl goes by its notes of what it locked, and by the current clock",)
    return _kept(snapshot, knob, now, knob.value, spelt).but(notes=notes)


def _compute_mode(
    snapshot: HostSnapshot, knob: Knob, gpus: Sequence[smi.GpuState], knobs: Mapping[str, Knob]
) -> Reading:
    left_out = _gpu_mps.exclusive_indexes(knobs, list(gpus))
    now = {gpu.uuid: gpu.value("compute_mode").lower() for gpu in gpus if gpu.index not in left_out}
    line = f"{knob.value} except {','.join(map(str, left_out))}" if left_out else knob.value
    reading = _kept(
        snapshot, knob, now, line, (knob.value, MODES[knob.value][0].lower(), {"default": "0"}.get(knob.value, ""))
    )
    notes: tuple[str, ...] = (f"GPU {', '.join(map(str, left_out))}: set by its MPS daemon",) if left_out else ()
    if knob.value == "default" and "exclusive_process" in now.values() and not _gpu_owners.mps_runs(snapshot.host):
        notes += (LEFT_BEHIND,)
    return reading.but(notes=notes)


def _ecc(snapshot: HostSnapshot, knob: Knob, gpus: Sequence[smi.GpuState], knobs: Mapping[str, Knob]) -> Reading:
    """ECC is kept by the GPU, and takes effect at its next reset."""
    del knobs
    states = {"Enabled": "on", "Disabled": "off"}
    current = {gpu.uuid: states[gpu.value("ecc.mode.current")] for gpu in gpus}
    pending = {gpu.uuid: states[gpu.value("ecc.mode.pending")] for gpu in gpus}
    reading = settled(
        knob,
        now=_text(current),
        boot=_text(pending),
        steps=tuple(Step(f"gpu:{uuid}:ecc", text, knob.value) for uuid, text in pending.items() if text != knob.value),
        conflicts=tuple(_gpu_owners.rivals(snapshot, "ecc", *(("1",) if knob.value == "on" else ("0",)))),
        reboot=any(text != knob.value for text in current.values()),
    )
    return (
        reading if reading.state == OK else reading.but(reason="takes effect when the GPU is reset, at the next reboot")
    )


def _refuse_without_persistence(gpus: Sequence[smi.GpuState], knobs: Mapping[str, Knob]) -> None:
    if "gpu.persistence" in knobs:
        off = [] if knobs["gpu.persistence"].value == "on" else list(gpus)
    else:
        off = [gpu for gpu in gpus if gpu.value("persistence_mode") != "Enabled"]
    if off:
        numbers = ", ".join(str(gpu.index) for gpu in off)
        why = "the driver forgets it when the last program closes the GPU"
        raise Refused(f"persistence is off on GPU {numbers}, and {why}: set persistence: on as well")


def _kept(
    snapshot: HostSnapshot, knob: Knob, now: Mapping[str, str | None], line: str, spelt: Sequence[str]
) -> Reading:
    """The reading of a setting that gpuctl-gpu.service keeps by a line."""
    steps = tuple(Step(f"gpu:{uuid}:{knob.key}", text, knob.value) for uuid, text in now.items() if text != knob.value)
    conflicts = _gpu_owners.rivals(snapshot, knob.key, *spelt)
    boot, kept = at_boot(snapshot, knob.name, line, conflicts, GPU_BOOT)
    return settled(
        knob,
        now=_text(now),
        boot=knob.value if boot == line else boot,
        steps=kept + steps,
        conflicts=tuple(conflicts),
    )


def _text(values: Mapping[str, str | None]) -> str:
    """ "500", or "500 on 6 GPUs, 700 on 2"."""
    counts = Counter(text or "not locked" for text in values.values())
    if len(counts) < 2:
        return next(iter(counts), "no GPU")
    return ", ".join(f"{text} on {count} GPU{'s' * (count > 1)}" for text, count in counts.items())


READERS: Mapping[str, Callable[[HostSnapshot, Knob, Sequence[smi.GpuState], Mapping[str, Knob]], Reading]] = {
    "power_limit": _power,
    "graphics_clock": _clock,
    "memory_clock": _clock,
    "compute_mode": _compute_mode,
    "ecc": _ecc,
}
