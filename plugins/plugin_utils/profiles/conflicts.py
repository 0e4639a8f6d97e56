"""Refuse two knobs that set the same thing, as each run would revert one of them."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import product
from typing import NamedTuple

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.kinds.sysctl import PAIRS

from ..strict_yaml import Mistake
from .model import Overlay, Profile, Row

# Shell patterns of knob names; the two of a row set the same thing.
RIVALS = (
    *((f"sysctl.{one}", f"sysctl.{other}") for one, other in PAIRS.items() if one < other),
    ("sysctl.kernel.numa_balancing", "cmdline.numa_balancing"),
    ("sysctl.kernel.nmi_watchdog", "cmdline.nmi_watchdog"),
    ("sysctl.sunrpc.*", "modprobe.sunrpc.*"),
    ("irq.balance", "unit.irqbalance.service"),
    ("swap.off", "unit.*.swap"),
    ("cpu.governor", "cmdline.cpufreq.default_governor"),
    ("cpu.idle_latency_us", "cmdline.intel_idle.max_cstate"),
    ("cpu.idle_latency_us", "cmdline.processor.max_cstate"),
    ("cpu.idle_latency_us", "cmdline.cpuidle.off"),
)
# Conditions with one value per host: overlays with different ones never apply together.
SINGLE = ("machine", "distribution", "family", "version", "arch", "vendor")


class PlacedRow(NamedTuple):
    """A row, and its overlay (None for the profile's own rows)."""

    row: Row
    overlay: Overlay | None


def rivals(profile: Profile) -> list[Mistake]:
    """A mistake for every two rows that set the same thing on some host."""
    placed = [PlacedRow(row, None) for row in profile.rows.values()]
    placed += [PlacedRow(row, overlay) for overlay in profile.overlays for row in overlay.rows.values()]
    return [
        Mistake(
            later.row.where,
            f"{later.row.name} sets the same thing as {first.row.name} ({first.row.where})",
            f"keep one, or leave the other out with `drop: [{first.row.name}]`",
        )
        for first, later in _pairs(placed)
        if _meet(first, later)
    ]


def _pairs(placed: list[PlacedRow]) -> Iterator[tuple[PlacedRow, PlacedRow]]:
    """Pairs of rows that set the same thing, each in the order of the profile."""
    parameters = ((g.row.name, f"cmdline.{g.row.name[9:]}") for g in placed if g.row.name.startswith("modprobe."))
    for one, other in (*RIVALS, *parameters):
        mine = [number for number, row in enumerate(placed) if fnmatchcase(row.row.name, one)]
        theirs = [number for number, row in enumerate(placed) if fnmatchcase(row.row.name, other)]
        for pair in product(mine, theirs):
            yield placed[min(pair)], placed[max(pair)]


def _meet(first: PlacedRow, later: PlacedRow) -> bool:
    """True if a host can get both rows: no overlay drops one, and their overlays can apply together."""
    if later.overlay is None or later.overlay is first.overlay:
        return True
    if first.row.name in later.overlay.drop:
        return False
    return first.overlay is None or not _exclusive(first.overlay, later.overlay)


def _exclusive(one: Overlay, other: Overlay) -> bool:
    both = [name for name in SINGLE if name in one.when and name in other.when]
    return any(not any(_overlap(a, b) for a, b in product(one.when[name], other.when[name])) for name in both)


def _overlap(a: str, b: str) -> bool:
    return fnmatchcase(a.lower(), b.lower()) or fnmatchcase(b.lower(), a.lower())
