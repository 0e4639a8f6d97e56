"""Swap: off now, and off after a reboot. Every area can be put back with the priority it had."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..host import Host
from ..model import Knob, Reading, Refused, Step, Unsupported
from ..settings.swap import Area, areas
from ..view import View
from ._common import read_each, settled
from ._types import Type, Word

CAP_SYS_ADMIN = 21
# What starts swap at boot besides fstab: units of their own, made by hand or by a generator.
UNIT_FILES = ("/etc/systemd/system/*.swap", "/usr/lib/systemd/system/*.swap", "/run/systemd/generator*/*.swap")


def type_of(key: str) -> Type | None:
    """What values a key takes."""
    return Word(("off",)) if key == "off" else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """The areas in use, and what brings areas back at the next boot."""
    return read_each(view, knobs, _read)


def _read(view: View, knob: Knob) -> Reading:
    used = areas(view.host)
    lines = fstab_lines(view.host)
    units = swap_units(view.host)
    if used:
        _refuse_if_harmful(view.host, used)
    steps = tuple(Step(f"swap:{area.path}", f"on priority={area.priority}", None) for area in used)
    steps += tuple(Step(f"comment:/etc/fstab:{line}", "on", "off") for line in lines)
    steps += tuple(step for unit in units for step in view.step(f"unit:{unit}:boot", "masked"))
    held = ", ".join(f"{area.path} {area.size // 1024} MiB" for area in used)
    boots = ", ".join(
        [*(line.split()[0] for line in lines), *(s.setting.split(":")[1] for s in steps if ".swap:boot" in s.setting)]
    )
    return settled(
        knob,
        now=held or "off",
        boot=boots or "off",
        steps=steps,
        disruptive="reads swapped pages back into memory" if any(area.used for area in used) else "",
    )


def _refuse_if_harmful(host: Host, used: list[Area]) -> None:
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", host.read_or_none("/proc/self/status") or "", re.MULTILINE)
    if capabilities and not int(capabilities.group(1), 16) >> CAP_SYS_ADMIN & 1:
        raise Unsupported("swap belongs to the machine under this container (no CAP_SYS_ADMIN)")
    if not host.which("swapoff"):
        raise Unsupported("there is no swapoff on this host")
    available = re.search(r"^MemAvailable:\s*(\d+) kB$", host.read("/proc/meminfo"), re.MULTILINE)
    in_use = sum(area.used for area in used)
    if available is None:
        raise Refused("/proc/meminfo does not tell how much memory is available")
    if in_use > int(available.group(1)):
        free = int(available.group(1)) // 1024
        raise Refused(
            f"{in_use // 1024} MiB are swapped out and only {free} MiB of memory are available: end some job first"
        )


def fstab_lines(host: Host) -> list[str]:
    """The lines of fstab that switch swap on at boot."""
    found = []
    for line in (host.read_or_none("/etc/fstab") or "").splitlines():
        fields = line.split()
        if len(fields) > 2 and not line.lstrip().startswith("#") and fields[2] == "swap":
            options = fields[3].split(",") if len(fields) > 3 else []
            found += [line] if "noauto" not in options else []
    return found


def swap_units(host: Host) -> list[str]:
    """Swap units that do not come from fstab: fstab's go when its lines go."""
    found = []
    for path in (path for pattern in UNIT_FILES for path in host.glob(pattern)):
        text = host.read_or_none(path) or ""
        if text and "SourcePath=/etc/fstab" not in text:
            found.append(path.rpartition("/")[2])
    return list(dict.fromkeys(found))
