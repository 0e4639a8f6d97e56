"""Settings: the few smallest things a host can be changed by. Every knob is reduced to some of these.

A setting is named by one line of text ("value:/proc/sys/vm/swappiness"), so that the undo record can name it and a
later run can take it up again. Reading gives its text or None (nothing there); writing puts a text or None there.
"""

from __future__ import annotations

from typing import Callable, Protocol

from ..host import Host
from . import comment, exclusive_pair, file, grubby, irq, line, package, restart, swap, unit, value


class Setting(Protocol):
    """One smallest changeable thing of a host."""

    def read(self, host: Host) -> str | None:
        """What it holds now; None where nothing is there. OSError or `Unreadable` where that cannot be known."""

    def write(self, host: Host, text: str | None) -> None:
        """Make it hold this; raises OSError or `RuntimeError` with the system's own words."""


MAKERS: dict[str, Callable[[str], Setting]] = {
    "package": package.Package,
    "file": file.File,
    "line": line.Line,
    "comment": comment.Comment,
    "grubby": grubby.Grubby,
    "swap": swap.Swap,  # before units: undo has unmasked an area's own unit when it is to come back
    "unit": unit.Unit,
    "value": value.Value,
    "either": exclusive_pair.Either,
    "irq": irq.Irq,
    "restart": restart.Restart,
}

# The order things are put in place; undo goes the other way round. Files come before what reads them.
PHASES = tuple(MAKERS)


def make(setting: str) -> Setting:
    """The setting that a line of text names."""
    kind, _, rest = setting.partition(":")
    return MAKERS[kind](rest)


def phase(setting: str) -> int:
    """When in a run this setting has its turn."""
    return PHASES.index(setting.partition(":")[0])


def show(text: str | None) -> str:
    """A setting's text for people: one short line."""
    if text is None:
        return "absent"
    first, line_end, rest = text.partition("\n")
    if line_end:  # a file: its mode and owner stand in the first line
        return f"mode {first.replace(' ', ' owner ')}, {len(rest)} characters"
    return first if len(first) <= 120 else f"{first[:100]}…"


def refresh_after(setting: str) -> str:
    """What must run so that the system takes note of a changed file; empty where nothing must."""
    kind, _, rest = setting.partition(":")
    if kind not in ("file", "line", "comment"):
        return ""
    return next((name for prefix, name in REFRESH_BY_PATH if rest.startswith(prefix)), "")


REFRESH_BY_PATH = (
    ("/etc/systemd/system/irqbalance.service.d/", "irqbalance"),
    ("/etc/systemd/", "systemd"),
    ("/etc/fstab", "systemd"),  # its swap and mount units are made anew from it
    ("/etc/udev/", "udev"),
    ("/etc/default/grub.d/", "grub"),
)
