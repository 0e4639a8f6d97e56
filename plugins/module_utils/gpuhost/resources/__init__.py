"""Settings: the smallest units of change on a host. Every knob becomes one or more of them.

A setting is named by one line of text ("value:/proc/sys/vm/swappiness"), so that records can name it and later runs
can undo it. Its state is a text, or None if it is absent.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from ..host import Host

if TYPE_CHECKING:  # for type checkers, and for Ansible, which sends a host the modules that it sees in such lines
    from . import (  # noqa: F401
        comment,
        deb,
        efa,
        exclusive_pair,
        file,
        folder,
        gpu,
        grubby,
        irq,
        kubelet,
        line,
        lock,
        module,
        mps,
        nccl_tests,
        package,
        repository,
        restart,
        rpm,
        slurm,
        swap,
        unit,
        value,
    )


class Setting(Protocol):
    """One unit of change on a host."""

    def read(self, host: Host) -> str | None:
        """The current text; None if absent. OSError or `Unreadable` if it cannot be read."""

    def write(self, host: Host, text: str | None) -> None:
        """Set the text, or remove the setting; OSError or `RuntimeError` with the system's message."""


# Kind -> its module here and its class, imported when a setting needs it: every visit starts the engine.
MAKERS = {
    "package": ("package", "Package"),
    "folder": ("folder", "Folder"),
    "file": ("file", "File"),
    "line": ("line", "Line"),
    "comment": ("comment", "Comment"),
    "repository": ("repository", "Repository"),  # after the files, as its key is one
    "deb": ("deb", "Deb"),
    "rpm": ("rpm", "Rpm"),
    "lock": ("lock", "Lock"),  # on the versions that are there by then
    "module": ("module", "Module"),
    "efa": ("efa", "Efa"),  # after the driver, against whose module it builds one of its own
    "nccl_tests": ("nccl_tests", "NcclTests"),  # after EFA, whose installer brings Open MPI
    "grubby": ("grubby", "Grubby"),
    "swap": ("swap", "Swap"),  # before units, so that undo unmasks an area's unit before it enables the area
    "unit": ("unit", "Unit"),
    "value": ("value", "Value"),
    "either": ("exclusive_pair", "Either"),
    "irq": ("irq", "Irq"),
    "gpu": ("gpu", "Gpu"),
    "mps": ("mps", "Mps"),  # after its GPUs, and before them in an undo
    "kubelet": ("kubelet", "KubeletPart"),  # after the runtimes whose configuration it relies on
    "slurm": ("slurm", "SlurmPart"),  # after the GPUs' MIG instances, which its lines name
    "restart": ("restart", "Restart"),
}

_FILE = re.compile(r"[0-7]{4} \d+:\d+")
FILES = ("file", "line", "comment", "repository", "kubelet", "slurm")
# The order of changes, reversed for undo: files come before their readers.
PHASES = tuple(MAKERS)


def make(setting: str) -> Setting:
    """The setting with this name."""
    kind, _, rest = setting.partition(":")
    module, name = MAKERS[kind]
    made: Setting = getattr(import_module(f"{__name__}.{module}"), name)(rest)
    return made


def file_of(setting: str) -> str:
    """Path of the file that holds the setting; empty if it is not part of a file that gpuctl replaces."""
    kind, _, rest = setting.partition(":")
    return rest.partition(":")[0] if kind in FILES else ""


def kernel_file_of(setting: str) -> str:
    """Path of the kernel file that the setting writes, of a pair the first; empty for other settings."""
    kind, _, rest = setting.partition(":")
    return rest.partition(":")[0] if kind == "either" else rest if kind == "value" else ""


def phase(setting: str) -> int:
    """Position of the setting in the order of changes."""
    return PHASES.index(setting.partition(":")[0])


def show(text: str | None) -> str:
    """A setting's text for people, shortened to one line."""
    if text is None:
        return "absent"
    first, line_end, rest = text.partition("\n")
    if line_end and not _FILE.fullmatch(first):  # lines of a file
        first, line_end = "; ".join(text.splitlines()), ""
    if line_end:  # a file: its first line has mode and owner
        return f"mode {first.replace(' ', ' owner ')}, {len(rest)} characters"
    return first if len(first) <= 120 else f"{first[:100]}…"


def refresh_after(setting: str) -> str:
    """Name of the refresh (refresh.py) that a changed file needs; empty for none."""
    kind, _, rest = setting.partition(":")
    if kind not in FILES:
        return ""
    return next((name for prefix, name in REFRESH_BY_PATH if rest.startswith(prefix)), "")


REFRESH_BY_PATH = (
    ("/etc/systemd/system/irqbalance.service.d/", "irqbalance"),
    ("/etc/systemd/", "systemd"),
    ("/etc/fstab", "systemd"),  # systemd generates swap and mount units from it
    ("/etc/udev/", "udev"),
    ("/etc/default/grub.d/", "grub"),
    ("/etc/modules-load.d/gpuctl-rdma.conf", ""),  # its part loads each module by itself
    ("/etc/modules-load.d/", "modules"),
    ("/etc/containerd/", "containerd"),
    ("/etc/docker/", "docker"),
    ("/etc/crio/", "crio"),
    ("/etc/modprobe.d/gpuctl-", "initramfs"),  # it has modules that are loaded before this file can be read
)
