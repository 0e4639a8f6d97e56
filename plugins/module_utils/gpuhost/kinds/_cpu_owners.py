"""Who else sets governors, energy preferences, idle states and boost: tuned, cpupower, units, cloud-init."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model import Conflict, Knob
from ..snapshot import View


@dataclass(frozen=True)
class Sign:
    """How others speak of a knob: tuned's name for it, what a command line names, the words they use for numbers."""

    tuned: str
    needles: tuple[str, ...]
    words: Mapping[str, str] = field(default_factory=dict)


BIAS = {"performance": "0", "balance-performance": "4", "normal": "6", "balance-power": "8", "powersave": "15"}
SIGNS = {
    "governor": Sign("governor", ("scaling_governor", "frequency-set")),
    "energy_perf_bias": Sign("energy_perf_bias", ("energy_perf_bias", "x86_energy_perf_policy"), BIAS),
    "energy_performance_preference": Sign("energy_performance_preference", ("energy_performance_preference",)),
    "idle_latency_us": Sign("force_latency", ("cpuidle/", "idle-set")),
    "boost": Sign("boost", ("cpufreq/boost", "no_turbo"), {"1": "on", "0": "off"}),
}
# Service -> the files that tell it which governor to set. gpuctl-boot runs after all of them.
SERVICES = {
    "cpupower": ("/etc/sysconfig/cpupower", "/etc/default/cpupower", "/etc/cpupower-service.conf"),
    "cpufrequtils": ("/etc/default/cpufrequtils",),
}
GOVERNOR = re.compile(r"""(?:governor\s*=|--governor[\s=]|\s-g\s*)\s*["']?([a-z]+)""", re.IGNORECASE)


def rivals(view: View, knob: Knob, *same: str) -> list[Conflict]:
    """Everybody whose files give the knob another value; `same` are other texts for the wanted one."""
    sign = SIGNS[knob.key]
    means = {str(knob.value), *same}
    said = view.owners.mentions(str(knob.value), *sign.needles)
    found = [rival for rival in said if not means & set(re.findall(r"[\w-]+", rival.value))]
    tuned = [r._replace(value=sign.words.get(r.value, r.value)) for r in view.owners.tuned_option("", sign.tuned)]
    found += [rival for rival in tuned if str(knob.value) not in rival.value.split("|")]
    if knob.key == "governor":
        found += [rival for rival in _services(view) if rival.value != knob.value]
    return found


def _services(view: View) -> list[Conflict]:
    found = []
    for service, paths in SERVICES.items():
        links = (f"/etc/systemd/system/*.wants/{service}.service", f"/etc/rc2.d/S*{service}")
        if not any(view.host.glob(link) for link in links):
            continue
        for path in paths:
            for number, line in enumerate((view.host.read_or_none(path) or "").splitlines(), 1):
                governor = None if line.lstrip().startswith("#") else GOVERNOR.search(line)
                if governor:
                    found.append(Conflict(f"{service}.service", f"{path}:{number}", governor.group(1), wins=False))
    return found
