"""Where the library of an allocator lies on a host, or which package of its distribution would bring it."""

from __future__ import annotations

from ..allocators import ALLOCATORS, folders, library
from ..facts.machine import Machine
from ..model import Step, Unsupported
from ..snapshot import View

# With the 64-bit time_t, Debian 13 and Ubuntu 24.04 gave this package another name.
RENAMED = {"debian": (13,), "ubuntu": (24, 4)}
RED_HAT = {"jemalloc": "jemalloc", "tcmalloc": "gperftools-libs"}


def library_of(view: View, allocator: str) -> tuple[str, tuple[Step, ...]]:
    """Its path, and the step that installs it; none where it is there already, by whatever way."""
    found = library(view.host, allocator)
    if found:
        return found, ()
    folder = folders()[0] if view.machine.family == "debian" else "/usr/lib64"
    setting = f"package:{package_of(view.machine, allocator)}"
    return f"{folder}/{ALLOCATORS[allocator].libraries[0]}", (Step(setting, None, "installed"),)


def package_of(machine: Machine, allocator: str) -> str:
    """The name its distribution gives the package; Unsupported where that is not known for certain."""
    version = tuple(int(part) for part in machine.version.split(".") if part.isdigit())
    if machine.distribution in RENAMED and version:
        if allocator == "jemalloc":
            return "libjemalloc2"
        return "libtcmalloc-minimal4t64" if version >= RENAMED[machine.distribution] else "libtcmalloc-minimal4"
    if machine.family == "rhel" and machine.distribution != "amzn":
        return RED_HAT[allocator]
    raise Unsupported(
        f"it is not known which package of {machine.distribution} {machine.version} brings {allocator}; "
        f"once {ALLOCATORS[allocator].libraries[0]} is installed it will be found"
    )
