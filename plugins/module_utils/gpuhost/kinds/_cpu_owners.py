"""Other owners of governors, energy preferences, idle states and boost: tuned, cpupower, units, cloud-init."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..model import Conflict, Knob
from ..snapshot import HostSnapshot


class Sign(NamedTuple):
    """Names of a knob elsewhere: tuned's option, texts in command lines, and synonyms of its numbers."""

    tuned: str
    needles: tuple[str, ...]
    synonyms: Mapping[str, str] = {}


BIAS = {"performance": "0", "balance-performance": "4", "normal": "6", "balance-power": "8", "powersave": "15"}
SIGNS = {
    "governor": Sign("governor", ("scaling_governor", "frequency-set")),
    "energy_perf_bias": Sign("energy_perf_bias", ("energy_perf_bias", "x86_energy_perf_policy"), BIAS),
    "energy_performance_preference": Sign("energy_performance_preference", ("energy_performance_preference",)),
    "idle_latency_us": Sign("force_latency", ("cpuidle/", "idle-set")),
    "boost": Sign("boost", ("cpufreq/boost", "no_turbo"), {"1": "on", "0": "off"}),
}
# Service -> the files that configure its governor. gpuctl-boot runs after all of them.
SERVICES = {
    "cpupower": ("/etc/sysconfig/cpupower", "/etc/default/cpupower", "/etc/cpupower-service.conf"),
    "cpufrequtils": ("/etc/default/cpufrequtils",),
}
# It sets these when it starts and whenever the profile changes; a desktop session may start it after gpuctl-boot.
PROFILES_DAEMON = "power-profiles-daemon.service"
ITS_KNOBS = ("governor", "energy_perf_bias", "energy_performance_preference")
GOVERNOR = re.compile(r"""(?:governor\s*=|--governor[\s=]|\s-g\s*)\s*["']?([a-z]+)""", re.IGNORECASE)


def rivals(snapshot: HostSnapshot, knob: Knob, *same: str) -> list[Conflict]:
    """Owners whose files give the knob another value; `same` are other texts for the desired one."""
    sign = SIGNS[knob.key]
    means = {str(knob.value), *same}
    mentions = snapshot.owners.mentions(str(knob.value), *sign.needles)
    conflicts = [rival for rival in mentions if not means & set(re.findall(r"[\w-]+", rival.value))]
    tuned = [
        r._replace(value=sign.synonyms.get(r.value, r.value)) for r in snapshot.owners.tuned_option("", sign.tuned)
    ]
    conflicts += [rival for rival in tuned if str(knob.value) not in rival.value.split("|")]
    started = snapshot.host.glob(f"/etc/systemd/system/*.wants/{PROFILES_DAEMON}")
    if started and knob.key in ITS_KNOBS:
        conflicts.append(Conflict(PROFILES_DAEMON, started[0], "as its power profile says", wins=True))
    if knob.key == "governor":
        conflicts += [rival for rival in _services(snapshot) if rival.value != knob.value]
    return conflicts


def _services(snapshot: HostSnapshot) -> list[Conflict]:
    conflicts = []
    for service, paths in SERVICES.items():
        links = (f"/etc/systemd/system/*.wants/{service}.service", f"/etc/rc2.d/S*{service}")
        if not any(snapshot.host.glob(link) for link in links):
            continue
        for path in paths:
            for number, line in enumerate((snapshot.host.read_or_none(path) or "").splitlines(), 1):
                governor = None if line.lstrip().startswith("#") else GOVERNOR.search(line)
                if governor:
                    conflicts.append(Conflict(f"{service}.service", f"{path}:{number}", governor.group(1), wins=False))
    return conflicts
