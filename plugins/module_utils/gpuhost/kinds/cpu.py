"""Processor performance: frequency governor, energy preference, idle states, boost.

Every processor has its own files and may have its own values, so there is one step per processor, and undo restores
each. Under the governor "performance", intel_pstate and amd-pstate fix the energy preference at "performance" and
refuse another with EBUSY; leaving that governor restores an older preference. So a preference is written again
wherever the governor changes, and `converge` and gpuctl-boot retry values that did not last.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..idle import State, states, to_switch
from ..model import Knob, Reading, Step, Unsupported
from ..snapshot import HostSnapshot
from ..topology import CPU, as_list, offline, online
from ._at_boot import at_boot
from ._common import read_all, settled
from ._cpu_owners import rivals
from ._types import Int, OneOf, Type

PREFERENCES = ("performance", "balance_performance", "balance_power", "power")
TYPES: dict[str, Type] = {
    "governor": OneOf(("performance", "powersave", "schedutil", "ondemand", "conservative")),
    "energy_perf_bias": Int(0, 15),
    # Not "default": the kernel accepts it, but then shows another word, so it could not be verified.
    "energy_performance_preference": OneOf(PREFERENCES),
    "idle_latency_us": Int(0, 1_000_000),
    "boost": OneOf(("on", "off")),
}


class PerCpu(NamedTuple):
    """A file of each processor: its path, the file with its choices, its name, and why it may be missing."""

    file: str
    choices: str
    name: str
    missing: str


GOVERNOR = PerCpu(
    "cpufreq/scaling_governor",
    "cpufreq/scaling_available_governors",
    "CPU frequency control",
    "the kernel has no cpufreq driver for it, or the firmware keeps it (power profile)",
)
PER_CPU = {
    "governor": GOVERNOR,
    "energy_perf_bias": PerCpu(
        "power/energy_perf_bias", "", "energy-performance bias", "only Intel's processors have one"
    ),
    "energy_performance_preference": PerCpu(
        "cpufreq/energy_performance_preference",
        "cpufreq/energy_performance_available_preferences",
        "energy-performance preference",
        "the drivers intel_pstate and amd-pstate have one, in active mode",
    ),
}
# File -> its texts for on and off: "no turbo" of intel_pstate, "boost" of acpi-cpufreq and others.
BOOST = {f"{CPU}/intel_pstate/no_turbo": {"on": "0", "off": "1"}, f"{CPU}/cpufreq/boost": {"on": "1", "off": "0"}}


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return TYPES.get(key)


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Values of all online processors now, and after gpuctl-boot and others at the next boot."""
    desired = {knob.key: str(knob.value) for knob in knobs}
    return read_all(snapshot, knobs, lambda snapshot, knob: _read(snapshot, knob, desired))


def _read(snapshot: HostSnapshot, knob: Knob, desired: Mapping[str, str]) -> Reading:
    if knob.key == "boost":
        return _boost(snapshot, knob)
    if knob.key == "idle_latency_us":
        return _idle(snapshot, knob)
    return _per_cpu(snapshot, knob, desired)


def _per_cpu(snapshot: HostSnapshot, knob: Knob, desired: Mapping[str, str]) -> Reading:
    spec = PER_CPU[knob.key]
    values = _values(snapshot, spec.file)
    if not values:
        raise _missing(snapshot, spec.name, spec.missing)
    other = {cpu for cpu, value in values.items() if value != knob.value}
    if knob.key == "energy_performance_preference":
        other |= _let_go(snapshot, str(knob.value), desired.get("governor"), other) & values.keys()
    if other and spec.choices:
        _check_offered(snapshot, spec, min(other), str(knob.value))
    steps = tuple(Step(f"value:{_path(cpu, spec.file)}", values[cpu], knob.value) for cpu in sorted(other))
    others = rivals(snapshot, knob)
    boot, kept = at_boot(snapshot, f"{CPU}/cpu[0-9]*/{spec.file}", knob.value, others)
    now = _summary(values.values())
    return settled(knob, now=now, boot=boot, steps=steps + kept, conflicts=tuple(others), notes=_left_out(snapshot))


def _path(cpu: int, file: str) -> str:
    return f"{CPU}/cpu{cpu}/{file}"


def _values(snapshot: HostSnapshot, file: str) -> dict[int, str]:
    """Online processor -> its value; empty if the first has no file, as then none has."""
    values: dict[int, str] = {}
    for cpu in online(snapshot.host):
        try:
            value = snapshot.host.value(_path(cpu, file))
        except OSError as error:
            if error.errno != errno.EBUSY:  # it went offline meanwhile
                raise
            continue
        if value is None and not values:
            break
        if value is not None:
            values[cpu] = value
    return values


def _let_go(snapshot: HostSnapshot, preference: str, governor: str | None, other: set[int]) -> set[int]:
    """Processors whose preference the governor fixes now, but not after this run."""
    if preference == "performance":
        if governor in (None, "performance"):
            return set()
        holding = _held(snapshot)
        return holding if holding and governor in _offered(snapshot, GOVERNOR, min(holding)) else set()
    if governor == "performance" or (governor is None and other & _held(snapshot)):
        raise Unsupported("the governor performance fixes the preference at performance: choose governor powersave")
    return set()


def _held(snapshot: HostSnapshot) -> set[int]:
    return {cpu for cpu, governor in _values(snapshot, GOVERNOR.file).items() if governor == "performance"}


def _offered(snapshot: HostSnapshot, spec: PerCpu, cpu: int) -> list[str]:
    return (snapshot.host.value(_path(cpu, spec.choices)) or "").split()


def _check_offered(snapshot: HostSnapshot, spec: PerCpu, cpu: int, value: str) -> None:
    offered = _offered(snapshot, spec, cpu)
    if value not in offered:
        driver = snapshot.host.value(_path(cpu, "cpufreq/scaling_driver")) or "the driver"
        raise Unsupported(f"{driver} does not offer {value} here: it has {', '.join(offered) or 'no choice at all'}")


def _missing(snapshot: HostSnapshot, what: str, why: str) -> Unsupported:
    if snapshot.machine.machine == "virtual":
        why = "in a virtual machine the hypervisor controls it"
    return Unsupported(f"no {what} on this machine: {why}")


def _left_out(snapshot: HostSnapshot) -> tuple[str, ...]:
    off = offline(snapshot.host)
    return (f"processors {as_list(off)} are offline and left out",) if off else ()


def _summary(values: Iterable[str]) -> str:
    """Text for people: "schedutil (64 CPUs)", or "performance on 63, powersave on 1 of 64"."""
    counted = Counter(values).most_common()
    if len(counted) == 1:
        return f"{counted[0][0]} ({counted[0][1]} CPUs)"
    shown = ", ".join(f"{value} on {count}" for value, count in counted)
    return f"{shown} of {sum(count for _, count in counted)}"


def _idle(snapshot: HostSnapshot, knob: Knob) -> Reading:
    idle_states = states(snapshot.host)
    if not idle_states:
        raise _missing(snapshot, "idle states to choose from", "the kernel has no cpuidle driver for it")
    steps = tuple(
        Step(f"value:{state.switch}", "1" if state.off else "0", "0" if state.off else "1")
        for state in to_switch(snapshot.host, idle_states, int(knob.value))
    )
    others = rivals(snapshot, knob)
    boot, kept = at_boot(snapshot, "cpu.idle_latency_us", knob.value, others)
    now = _summary(_deepest(snapshot, idle_states))
    return settled(knob, now=now, boot=boot, steps=steps + kept, conflicts=tuple(others), notes=_left_out(snapshot))


def _deepest(snapshot: HostSnapshot, idle_states: Sequence[State]) -> list[str]:
    """Latency and name of the slowest enabled state, one text per processor."""
    deepest: dict[int, State] = {}
    for state in idle_states:
        known = deepest.get(state.cpu)
        if not state.off and (known is None or state.latency_us > known.latency_us):
            deepest[state.cpu] = state
    names: dict[int, str] = {}
    for state in deepest.values():
        if state.latency_us not in names:
            names[state.latency_us] = snapshot.host.value(f"{state.folder}/name") or ""
    return [f"{state.latency_us} {names[state.latency_us]}".strip() for state in deepest.values()]


def _boost(snapshot: HostSnapshot, knob: Knob) -> Reading:
    path = next((path for path in BOOST if snapshot.host.exists(path)), None)
    if path is None:
        raise _missing(snapshot, "switch for boost", "its processors or their driver have none")
    text = {raw: word for word, raw in BOOST[path].items()}
    raw = BOOST[path][str(knob.value)]
    now = snapshot.host.value(path) or ""
    others = rivals(snapshot, knob, raw)
    boot, kept = at_boot(snapshot, path, raw, others)
    steps = snapshot.step(f"value:{path}", raw) + kept
    return settled(knob, now=text.get(now, now), boot=text.get(boot, boot), steps=steps, conflicts=tuple(others))
