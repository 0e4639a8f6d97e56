"""How fast the processors run and how deep they sleep: frequency governor, energy preference, idle states, boost.

Each processor has its own files, and may have had its own values: one step for each that differs, so that undo gives
every one its own back. Under the governor "performance" intel_pstate and amd-pstate hold the energy preference at
"performance" and refuse another with EBUSY; leaving that governor brings an older preference back. So a preference is
written again wherever the governor changes, and `converge` and gpuctl-boot try a second time what did not hold.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..idle import State, states, to_switch
from ..model import Knob, Reading, Step, Unsupported
from ..snapshot import View
from ..topology import CPU, as_list, offline, online
from ._at_boot import at_boot
from ._common import read_each, settled
from ._cpu_owners import rivals
from ._types import Int, Type, Word

PREFERENCES = ("performance", "balance_performance", "balance_power", "power")
TYPES: dict[str, Type] = {
    "governor": Word(("performance", "powersave", "schedutil", "ondemand", "conservative")),
    "energy_perf_bias": Int(0, 15),
    # The kernel takes "default" too, and then shows another word: it could never be seen to be right.
    "energy_performance_preference": Word(PREFERENCES),
    "idle_latency_us": Int(0, 1_000_000),
    "boost": Word(("on", "off")),
}


class PerCpu(NamedTuple):
    """A file that each processor has: its place, the file that lists what it takes, its name, why it may be missing."""

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
# Whose file shows 1 for what: acpi-cpufreq and others say "boost", intel_pstate says "no turbo".
BOOST = {f"{CPU}/intel_pstate/no_turbo": {"on": "0", "off": "1"}, f"{CPU}/cpufreq/boost": {"on": "1", "off": "0"}}


def type_of(key: str) -> Type | None:
    """What values a key takes."""
    return TYPES.get(key)


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """What every processor at work has now, and what gpuctl-boot and others make of it at the next boot."""
    wanted = {knob.key: str(knob.value) for knob in knobs}
    return read_each(view, knobs, lambda view, knob: _read(view, knob, wanted))


def _read(view: View, knob: Knob, wanted: Mapping[str, str]) -> Reading:
    if knob.key == "boost":
        return _boost(view, knob)
    if knob.key == "idle_latency_us":
        return _idle(view, knob)
    return _per_cpu(view, knob, wanted)


def _per_cpu(view: View, knob: Knob, wanted: Mapping[str, str]) -> Reading:
    spec = PER_CPU[knob.key]
    found = _values(view, spec.file)
    if not found:
        raise _missing(view, spec.name, spec.missing)
    other = {cpu for cpu, value in found.items() if value != knob.value}
    if knob.key == "energy_performance_preference":
        other |= _let_go(view, str(knob.value), wanted.get("governor"), other) & found.keys()
    if other and spec.choices:
        _check_offered(view, spec, min(other), str(knob.value))
    steps = tuple(Step(f"value:{_path(cpu, spec.file)}", found[cpu], knob.value) for cpu in sorted(other))
    others = rivals(view, knob)
    boot, kept = at_boot(view, f"{CPU}/cpu[0-9]*/{spec.file}", knob.value, others)
    now = _summary(found.values())
    return settled(knob, now=now, boot=boot, steps=steps + kept, conflicts=tuple(others), notes=_left_out(view))


def _path(cpu: int, file: str) -> str:
    return f"{CPU}/cpu{cpu}/{file}"


def _values(view: View, file: str) -> dict[int, str]:
    """Processor -> its value, of those at work; a driver gives all of them the file, or none."""
    found: dict[int, str] = {}
    for cpu in online(view.host):
        try:
            value = view.host.value(_path(cpu, file))
        except OSError as error:
            if error.errno != errno.EBUSY:  # it was switched off since we asked
                raise
            continue
        if value is None and not found:
            break
        if value is not None:
            found[cpu] = value
    return found


def _let_go(view: View, preference: str, governor: str | None, other: set[int]) -> set[int]:
    """The processors whose preference the governor holds now and will not hold after this run."""
    if preference == "performance":
        if governor in (None, "performance"):
            return set()
        held = _held(view)
        return held if held and governor in _offered(view, GOVERNOR, min(held)) else set()
    if governor == "performance" or (governor is None and other & _held(view)):
        raise Unsupported("the governor performance holds the preference at performance: choose governor powersave")
    return set()


def _held(view: View) -> set[int]:
    return {cpu for cpu, governor in _values(view, GOVERNOR.file).items() if governor == "performance"}


def _offered(view: View, spec: PerCpu, cpu: int) -> list[str]:
    return (view.host.value(_path(cpu, spec.choices)) or "").split()


def _check_offered(view: View, spec: PerCpu, cpu: int, value: str) -> None:
    offered = _offered(view, spec, cpu)
    if value not in offered:
        driver = view.host.value(_path(cpu, "cpufreq/scaling_driver")) or "the driver"
        raise Unsupported(f"{driver} does not offer {value} here: it has {', '.join(offered) or 'no choice at all'}")


def _missing(view: View, what: str, why: str) -> Unsupported:
    if view.machine.machine == "virtual":
        why = "in a virtual machine the hypervisor keeps it to itself"
    return Unsupported(f"no {what} on this machine: {why}")


def _left_out(view: View) -> tuple[str, ...]:
    off = offline(view.host)
    return (f"processors {as_list(off)} are switched off and left out",) if off else ()


def _summary(values: Iterable[str]) -> str:
    """For people: "schedutil (64 CPUs)", or "performance on 63, powersave on 1 of 64"."""
    counted = Counter(values).most_common()
    if len(counted) == 1:
        return f"{counted[0][0]} ({counted[0][1]} CPUs)"
    shown = ", ".join(f"{value} on {count}" for value, count in counted)
    return f"{shown} of {sum(count for _, count in counted)}"


def _idle(view: View, knob: Knob) -> Reading:
    found = states(view.host)
    if not found:
        raise _missing(view, "idle states to choose from", "the kernel has no cpuidle driver for it")
    steps = tuple(
        Step(f"value:{state.switch}", "1" if state.off else "0", "0" if state.off else "1")
        for state in to_switch(view.host, found, int(knob.value))
    )
    others = rivals(view, knob)
    boot, kept = at_boot(view, "cpu.idle_latency_us", knob.value, others)
    now = _summary(_deepest(view, found))
    return settled(knob, now=now, boot=boot, steps=steps + kept, conflicts=tuple(others), notes=_left_out(view))


def _deepest(view: View, found: Sequence[State]) -> list[str]:
    """For each processor the slowest waking of the states that are on, and that state's name."""
    deepest: dict[int, State] = {}
    for state in found:
        known = deepest.get(state.cpu)
        if not state.off and (known is None or state.latency_us > known.latency_us):
            deepest[state.cpu] = state
    names: dict[int, str] = {}
    for state in deepest.values():
        if state.latency_us not in names:
            names[state.latency_us] = view.host.value(f"{state.folder}/name") or ""
    return [f"{state.latency_us} {names[state.latency_us]}".strip() for state in deepest.values()]


def _boost(view: View, knob: Knob) -> Reading:
    path = next((path for path in BOOST if view.host.exists(path)), None)
    if path is None:
        raise _missing(view, "switch for boost", "its processors or their driver have none")
    text = {raw: word for word, raw in BOOST[path].items()}
    raw = BOOST[path][str(knob.value)]
    now = view.host.value(path) or ""
    others = rivals(view, knob, raw)
    boot, kept = at_boot(view, path, raw, others)
    steps = view.step(f"value:{path}", raw) + kept
    return settled(knob, now=text.get(now, now), boot=text.get(boot, boot), steps=steps, conflicts=tuple(others))
