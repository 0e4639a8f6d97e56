"""Swap off, now and after a reboot. Undo restores every area with its priority."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..host import Host
from ..model import Conflict, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..resources.comment import lines_of
from ..resources.swap import Area, areas
from ..snapshot import HostSnapshot
from . import _rights
from ._common import read_all, settled
from ._swap_units import started, to_stop, ungenerated_zram
from ._types import OneOf, Type

AZURE = "/etc/waagent.conf"
# Commands that list swap areas, and texts that only name the program.
HARMLESS = re.compile(
    r"\bswapon\s+(?:-\w*[sVh]\b|--(?:show|summary|version|help)\b)"
    r"|(?<![\w-])(?:echo|printf|logger|which|type|command\s+-v)\s(?:(?!\$\(|`)[^|;&])*\bswapon\b"
)


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return OneOf(("off",)) if key == "off" else None


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Swap areas in use, and the lines and units that enable areas at boot."""
    return read_all(snapshot, knobs, _read)


def _read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    used = areas(snapshot.host)
    _refuse_if_harmful(snapshot.host, used)
    lines = fstab_lines(snapshot.host)
    units = to_stop(snapshot.host, started(snapshot.host))
    steps = tuple(Step(f"comment:/etc/fstab:{line}", "on", "off") for line in lines)
    steps += tuple(Step(f"swap:{area.path}", area.state, None) for area in used)
    for unit, state in units.items():
        steps += snapshot.step(f"unit:{unit}:boot", state)
    return settled(
        knob,
        now=", ".join(f"{area.path} {area.size // 1024} MiB" for area in used) or "off",
        boot=", ".join([*(line.split()[0] for line in lines), *units]) or "off",
        steps=steps,
        conflicts=tuple(_rivals(snapshot)),
        disruptive="reads swapped pages back into memory" if any(area.used for area in used) else "",
    )


def fstab_lines(host: Host) -> list[str]:
    """Lines of fstab that enable swap at boot."""
    swap_lines = []
    for line, _ in lines_of(host.read_or_none("/etc/fstab") or ""):
        _, _, kind, options, *_ = [*line.split(), "", "", "", ""]
        if kind == "swap" and not line.lstrip().startswith("#") and "noauto" not in options.split(","):
            swap_lines.append(line)
    return swap_lines


def _refuse_if_harmful(host: Host, used: list[Area]) -> None:
    if not used:
        return
    if not _rights.may(host, _rights.SYS_ADMIN):
        raise Unsupported("swap belongs to the machine under this container (no CAP_SYS_ADMIN)")
    if not host.which("swapoff"):
        raise Unsupported("there is no swapoff on this host")
    available = re.search(r"^MemAvailable:\s*(\d+) kB$", host.read("/proc/meminfo"), re.MULTILINE)
    if available is None:
        raise Unreadable("/proc/meminfo has no MemAvailable")
    out, free = sum(area.used for area in used), int(available.group(1))
    if out > free:
        raise Refused(
            f"{out // 1024} MiB are swapped out and only {free // 1024} MiB of memory are available: end a job first"
        )


def _rivals(snapshot: HostSnapshot) -> list[Conflict]:
    """Owners that enable swap at boot or later, as nothing of ours switches it off then."""
    conflicts = snapshot.owners.mentions("\0", "swapon", all_win=True)
    conflicts = [one for one in conflicts if "swapon" in HARMLESS.sub("", one.value)]
    for number, line in enumerate((snapshot.host.read_or_none(AZURE) or "").splitlines(), 1):
        if re.match(r"ResourceDisk\.EnableSwap\s*=\s*y", line, re.IGNORECASE):
            conflicts.append(Conflict("Azure agent", f"{AZURE}:{number}", line.strip(), wins=True))
    return conflicts + ungenerated_zram(snapshot.host)
