"""Kinds: each turns knobs of one sort into readings of settings. `KINDS` is the only list of them.

A kind is a module with `read(view, knobs) -> list[Reading]` (one for each knob, in order) and `type_of(key) -> Type or
None` (what values a key takes; None for a key it does not know). One that can do lasting harm also has
`prove(host) -> str`: after its steps are done, "" when all is well, else why they must be taken back.
"""

from __future__ import annotations

from types import ModuleType

from ..model import Knob
from . import allocator, cmdline, cpu, file, irq, limits, modprobe, program, swap, sysctl, thp, unit

KINDS: dict[str, ModuleType] = {
    "sysctl": sysctl,
    "thp": thp,
    "swap": swap,
    "cpu": cpu,
    "irq": irq,
    "limits": limits,
    "cmdline": cmdline,
    "modprobe": modprobe,
    "unit": unit,
    "file": file,
    "allocator": allocator,
    "program": program,
}

# Their values live in the kernel alone; a unit of ours puts them back at every boot.
NEEDS_BOOT_UNIT = frozenset({"thp", "cpu", "irq"})
BOOT_KNOB = Knob(
    "program.gpuctl-boot", "installed", "puts kernel settings that no file can keep back at every boot", "gpuctl"
)
