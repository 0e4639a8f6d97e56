"""Kernel arguments that a profile may set, and the types of their values."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..kernel_line import PRESENT
from ._types import Int, Text, Type

# Names with underscores, as the kernel compares them.
BOOT_LOADERS = {
    *("root", "rootfstype", "rootflags", "rootwait", "ro", "rw", "init", "rdinit", "initrd", "resume", "BOOT_IMAGE"),
    *("single", "emergency", "rescue", "systemd.unit"),
}
# Valid several times on a line, where every one or their order counts.
SEVERAL = {
    *("console", "earlycon", "earlyprintk", "hugepagesz", "memmap", "crashkernel", "acpi_osi", "video"),
    *("cgroup_disable", "cgroup_enable", "modprobe.blacklist", "ip", "ifname", "nameserver"),
}
ELSEWHERE = {"transparent_hugepage", "hugepages"}  # thp.enabled and sysctl.vm.nr_hugepages own these
# Known arguments without a value; others are written with the value "present".
FLAGS = {"nosmt", "nowatchdog", "nosoftlockup", "threadirqs", "nohpet", "nomodeset", "quiet", "nokaslr", "nopti"}
# Characters without a meaning in a shell, GRUB and grubby.
SAFE = r"[A-Za-z0-9_.,:/@%+=-]+"
CPU = r"(?:\d+|N)(?:-(?:\d+|N)(?::\d+/\d+)?)?"
CPUS = rf"(?:(?:domain|managed_irq|nohz),)*(?:all|housekeeping|isolated|{CPU}(?:,{CPU})*)"


class Argument(NamedTuple):
    """Any single value; for a flag, "on" means that it is present."""

    flag: bool = False

    def check(self, value: object) -> str:
        text = {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
        if self.flag and text == "on":
            return PRESENT
        if not re.fullmatch(SAFE, text):
            raise ValueError(f"must be one word of letters, digits and _.,:/@%+=- alone, not {value!r}")
        return text


class Cpus(NamedTuple):
    """A kernel list of processors, or a name of _isolation.py, with optional flags of isolcpus before it."""

    def check(self, value: object) -> str:
        if isinstance(value, bool) or not re.fullmatch(CPUS, str(value)):
            raise ValueError(f"must be a list of processors such as 2-31,34-63, not {value!r}")
        return str(value)


class Denied(NamedTuple):
    """Refuses every value: an argument that no profile may set."""

    why: str

    def check(self, value: object) -> str:
        raise ValueError(self.why)


TYPES: dict[str, Type] = {
    "iommu": Text(r"[a-z]+(,[a-z]+)*"),
    "init_on_alloc": Int(0, 1),
    "init_on_free": Int(0, 1),
    "isolcpus": Cpus(),
    "nohz_full": Cpus(),
    "rcu_nocbs": Cpus(),
    "irqaffinity": Cpus(),
    "kthread_cpus": Cpus(),
}


def type_of(key: str) -> Type | None:
    """Type of an argument's value; None if it is not an argument's name, or another knob sets it."""
    name = key.replace("-", "_")
    if not re.fullmatch(r"[A-Za-z][\w.]*", name, re.ASCII) or name in ELSEWHERE:
        return None
    if name in BOOT_LOADERS:
        return Denied("belongs to the boot loader: a wrong value leaves a host that does not start")
    if name in SEVERAL or name.startswith("rd."):
        return Denied("may stand on the line several times, and their order counts: set it in /etc/default/grub")
    return TYPES.get(name, Argument(flag=name in FLAGS))
