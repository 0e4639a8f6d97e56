"""Transparent huge pages; no other kind sets them."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Conflict, Knob, Reading, Step, Unsupported
from ..snapshot import HostSnapshot
from ._at_boot import at_boot
from ._common import read_all, settled
from ._types import Int, OneOf, Type

FOLDER = "/sys/kernel/mm/transparent_hugepage"
TYPES: dict[str, Type] = {
    "enabled": OneOf(("always", "madvise", "never")),
    "defrag": OneOf(("always", "defer", "defer+madvise", "madvise", "never")),
    "shmem_enabled": OneOf(("always", "within_size", "advise", "never", "deny", "force")),
    "khugepaged_defrag": Int(0, 1),
    "khugepaged_max_ptes_none": Int(0, 511),
    "khugepaged_scan_sleep_millisecs": Int(0, 4294967295),
}
TUNED = {"enabled": ("transparent_hugepages", "transparent_hugepage")}


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return TYPES.get(key)


def path_of(key: str) -> str:
    """The file of a key."""
    return f"{FOLDER}/khugepaged/{key[11:]}" if key.startswith("khugepaged_") else f"{FOLDER}/{key}"


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Values now, and after gpuctl-boot, tuned and others at the next boot."""
    return read_all(snapshot, knobs, _read)


def _read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    path = path_of(knob.key)
    now = snapshot.host.value(path)
    if now is None:
        raise Unsupported(f"this kernel has no {path}")
    rivals = _rivals(snapshot, knob, path)
    steps: tuple[Step, ...] = (Step(f"value:{path}", now, knob.value),) if now != knob.value else ()
    boot, kept = at_boot(snapshot, path, knob.value, rivals)
    return settled(knob, now=now, boot=boot, steps=steps + kept, conflicts=tuple(rivals))


def _rivals(snapshot: HostSnapshot, knob: Knob, path: str) -> list[Conflict]:
    # Without the folders above, for which scripts use patterns.
    conflicts = snapshot.owners.mentions(knob.value, path[path.index("transparent_hugepage") :])
    conflicts += snapshot.owners.tuned_option(knob.value, *TUNED.get(knob.key, ()))
    conflicts += snapshot.owners.tuned_option(knob.value, path)
    if knob.key != "enabled":
        return conflicts
    for word in (snapshot.host.read_or_none("/proc/cmdline") or "").split():
        name, _, value = word.partition("=")
        if name == "transparent_hugepage" and value != knob.value:
            conflicts.append(Conflict("kernel command line", "/proc/cmdline:1", value, wins=False))
    return conflicts
