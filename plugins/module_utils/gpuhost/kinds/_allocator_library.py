"""Find the library of an allocator on a host, or the package of the distribution that contains it."""

from __future__ import annotations

from ..allocators import ALLOCATORS, folders, library
from ..facts.machine import Machine
from ..model import Step, Unsupported
from ..snapshot import HostSnapshot

# Debian 13 and Ubuntu 24.04 renamed this package for the 64-bit time_t.
RENAMED = {"debian": (13,), "ubuntu": (24, 4)}
RED_HAT = {"jemalloc": "jemalloc", "tcmalloc": "gperftools-libs"}


def library_of(snapshot: HostSnapshot, allocator: str) -> tuple[str, tuple[Step, ...]]:
    """(path of the library, steps that install it); no steps if it is installed."""
    path = library(snapshot.host, allocator)
    if path:
        return path, ()
    folder = folders()[0] if snapshot.machine.family == "debian" else "/usr/lib64"
    setting = f"package:{package_of(snapshot.machine, allocator)}"
    return f"{folder}/{ALLOCATORS[allocator].libraries[0]}", (Step(setting, None, "installed"),)


def package_of(machine: Machine, allocator: str) -> str:
    """Name of the package in the host's distribution; Unsupported if it is not known for certain."""
    version = tuple(int(part) for part in machine.version.split(".") if part.isdigit())
    if machine.distribution in RENAMED and version:
        if allocator == "jemalloc":
            return "libjemalloc2"
        return "libtcmalloc-minimal4t64" if version >= RENAMED[machine.distribution] else "libtcmalloc-minimal4"
    if machine.family == "rhel" and machine.distribution != "amzn":
        return RED_HAT[allocator]
    raise Unsupported(
        f"it is not known which package of {machine.distribution} {machine.version} contains {allocator}; "
        f"install {ALLOCATORS[allocator].libraries[0]} yourself, and run this again"
    )
