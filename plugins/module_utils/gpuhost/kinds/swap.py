"""Swap: off now, and off after a reboot. Every area can be put back with the priority it had."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..host import Host
from ..model import Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..resources.comment import lines_of
from ..resources.swap import Area, areas
from ..snapshot import View
from . import _rights
from ._common import read_each, settled
from ._swap_units import started, to_stop
from ._types import Type, Word

AZURE = "/etc/waagent.conf"


def type_of(key: str) -> Type | None:
    """What values a key takes."""
    return Word(("off",)) if key == "off" else None


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """The areas in use, and what brings areas back at the next boot."""
    return read_each(view, knobs, _read)


def _read(view: View, knob: Knob) -> Reading:
    used = areas(view.host)
    _refuse_if_harmful(view.host, used)
    lines = fstab_lines(view.host)
    at_boot = started(view.host)
    units = to_stop(view.host, at_boot)
    steps = tuple(Step(f"comment:/etc/fstab:{line}", "on", "off") for line in lines)
    steps += tuple(Step(f"swap:{area.path}", area.state, None) for area in used)
    for unit, state in units.items():
        steps += view.step(f"unit:{unit}:boot", state)
    return settled(
        knob,
        now=", ".join(f"{area.path} {area.size // 1024} MiB" for area in used) or "off",
        boot=", ".join([*(line.split()[0] for line in lines), *units]) or "off",
        steps=steps,
        conflicts=tuple(_rivals(view, at_boot)),
        disruptive="reads swapped pages back into memory" if any(area.used for area in used) else "",
    )


def fstab_lines(host: Host) -> list[str]:
    """The lines of fstab that switch swap on at boot."""
    found = []
    for line, _ in lines_of(host.read_or_none("/etc/fstab") or ""):
        _, _, kind, options, *_ = [*line.split(), "", "", "", ""]
        if kind == "swap" and not line.lstrip().startswith("#") and "noauto" not in options.split(","):
            found.append(line)
    return found


def _refuse_if_harmful(host: Host, used: list[Area]) -> None:
    if not used:
        return
    if not _rights.may(host, _rights.SYS_ADMIN):
        raise Unsupported("swap belongs to the machine under this container (no CAP_SYS_ADMIN)")
    if not host.which("swapoff"):
        raise Unsupported("there is no swapoff on this host")
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", host.read("/proc/meminfo"), re.MULTILINE)
    if found is None:
        raise Unreadable("/proc/meminfo does not tell how much memory is available")
    out, free = sum(area.used for area in used), int(found.group(1))
    if out > free:
        raise Refused(
            f"{out // 1024} MiB are swapped out and only {free // 1024} MiB of memory are available: end some job first"
        )


def _rivals(view: View, at_boot: set[str]) -> list[Conflict]:
    """Others that switch swap on later in a boot, where nothing of ours comes after them."""
    found = [rival._replace(wins=True) for rival in view.owners.mentions("\0", "swapon")]
    found = [rival for rival in found if rival.owner != "unit" or _unit(rival) in at_boot]
    for number, line in enumerate((view.host.read_or_none(AZURE) or "").splitlines(), 1):
        if re.match(r"ResourceDisk\.EnableSwap\s*=\s*y", line, re.IGNORECASE):
            found.append(Conflict("Azure agent", f"{AZURE}:{number}", line.strip(), wins=True))
    return found


def _unit(rival: Conflict) -> str:
    return rival.where.rpartition(":")[0].rpartition("/")[2]
