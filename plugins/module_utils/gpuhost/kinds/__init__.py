"""Kinds of settings: each compares knobs of its kind with the host. `KINDS` lists them all.

A kind is a module with `read(snapshot, knobs) -> list[Reading]` (one per knob, in order) and `type_of(key)` (the type
of a key's value; None for an unknown key). A kind that can do lasting harm also has `prove(host) -> str`, which runs
after its steps: "" if the host still works, else why the steps must be reverted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ..model import Knob

if TYPE_CHECKING:  # for type checkers, and for Ansible, which sends a host the modules that it sees in such lines
    from . import (  # noqa: F401
        allocator,
        cmdline,
        cpu,
        disk,
        file,
        gpu,
        gpu_stack,
        irq,
        kubelet,
        limits,
        modprobe,
        program,
        slurm,
        swap,
        sysctl,
        thp,
        unit,
    )


class _Kinds(Mapping[str, ModuleType]):
    """Kind -> its module, imported when it is asked for: every visit starts the engine."""

    def __getitem__(self, kind: str) -> ModuleType:
        if kind not in NAMES:
            raise KeyError(kind)
        return import_module(f"{__name__}.{kind}")

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


NAMES = (
    "sysctl",
    "thp",
    "swap",
    "cpu",
    "disk",
    "irq",
    "gpu",
    "limits",
    "cmdline",
    "modprobe",
    "unit",
    "file",
    "allocator",
    "program",
    "gpu_stack",
    "kubelet",
    "slurm",
)
KINDS: Mapping[str, ModuleType] = _Kinds()

# No file keeps these values over a reboot; our boot unit sets them again.
NEEDS_BOOT_UNIT = frozenset({"thp", "cpu", "disk", "irq"})
# Kinds whose values other programs may set while the host starts.
HAVE_OWNERS = frozenset({"sysctl", "thp", "cpu", "disk", "irq", "swap", "gpu"})
BOOT_KNOB = Knob("program.gpuctl-boot", "installed", "sets kernel values at every boot that no file can keep", "gpuctl")
GPU_BOOT_KNOB = Knob(
    "program.gpuctl-gpu", "installed", "sets GPUs at every boot and driver load, as they keep nothing", "gpuctl"
)
# Programs of gpuctl's own that kinds need: knob -> kinds.
BOOT_PROGRAMS = {BOOT_KNOB: NEEDS_BOOT_UNIT, GPU_BOOT_KNOB: frozenset({"gpu"})}
# Knobs of these kinds that a file of their own keeps.
WITHOUT_PROGRAM = frozenset({"irq.balance", "disk.nfs_read_ahead_kb"})
