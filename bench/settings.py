"""The settings of the benchmark and their files on a host: the one list for all sides."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ansible_collections.gpuctl.fleet.plugins.plugin_utils import profiles

PROFILE = Path(__file__).with_name("settings.yml")
THP = "/sys/kernel/mm/transparent_hugepage"
GOVERNOR = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"


class Setting(NamedTuple):
    """One knob: its kind (sysctl, thp, cpu, file, unit), key, desired value, and the file that shows it."""

    kind: str
    key: str
    value: str
    path: str


def settings() -> list[Setting]:
    """All settings of settings.yml."""
    rows = []
    for row in profiles.load(PROFILE).rows.values():
        kind, _, key = row.name.partition(".")
        value = row.value.partition("\n")[2] if kind == "file" else str(row.value)
        rows.append(Setting(kind, key, value, _path(kind, key)))
    return rows


def _path(kind: str, key: str) -> str:
    if kind == "sysctl":
        return "/proc/sys/" + key.replace(".", "/")
    if kind == "thp":
        return f"{THP}/khugepaged/{key[11:]}" if key.startswith("khugepaged_") else f"{THP}/{key}"
    if kind == "cpu":
        return GOVERNOR
    return key if kind == "file" else f"/etc/systemd/system/multi-user.target.wants/{key}"
