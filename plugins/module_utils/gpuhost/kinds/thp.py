"""Transparent huge pages. They are set here alone: never by a sysctl or a file knob."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Conflict, Knob, Reading, Step, Unsupported
from ..snapshot import View
from ._at_boot import at_boot
from ._common import read_each, settled
from ._types import Int, Type, Word

FOLDER = "/sys/kernel/mm/transparent_hugepage"
TYPES: dict[str, Type] = {
    "enabled": Word(("always", "madvise", "never")),
    "defrag": Word(("always", "defer", "defer+madvise", "madvise", "never")),
    "shmem_enabled": Word(("always", "within_size", "advise", "never", "deny", "force")),
    "khugepaged_defrag": Int(0, 1),
    "khugepaged_max_ptes_none": Int(0, 511),
    "khugepaged_scan_sleep_millisecs": Int(0, 4294967295),
}
TUNED = {"enabled": ("transparent_hugepages", "transparent_hugepage")}


def type_of(key: str) -> Type | None:
    """What values a key takes."""
    return TYPES.get(key)


def path_of(key: str) -> str:
    """The file of a key."""
    return f"{FOLDER}/khugepaged/{key[11:]}" if key.startswith("khugepaged_") else f"{FOLDER}/{key}"


def read(view: View, knobs: Sequence[Knob]) -> list[Reading]:
    """What runs now, and what the boot files of gpuctl, tuned and others make of it."""
    return read_each(view, knobs, _read)


def _read(view: View, knob: Knob) -> Reading:
    path = path_of(knob.key)
    now = view.host.value(path)
    if now is None:
        raise Unsupported(f"this kernel has no {path}")
    rivals = _rivals(view, knob, path)
    steps: tuple[Step, ...] = view.step(f"value:{path}", knob.value) if now != knob.value else ()
    boot, kept = at_boot(view, path, knob.value, rivals)
    return settled(knob, now=now, boot=boot, steps=steps + kept, conflicts=tuple(rivals))


def _rivals(view: View, knob: Knob, path: str) -> list[Conflict]:
    found = view.owners.mentions(knob.value, path)
    found += view.owners.tuned_option(knob.value, *TUNED.get(knob.key, ()))
    found += view.owners.tuned_option(knob.value, path)
    if knob.key != "enabled":
        return found
    for word in (view.host.read_or_none("/proc/cmdline") or "").split():
        name, _, value = word.partition("=")
        if name == "transparent_hugepage" and value != knob.value:
            found.append(Conflict("kernel command line", "/proc/cmdline:1", value, wins=False))
    return found
