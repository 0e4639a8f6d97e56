"""The machines test hosts can be shaped after, and the files of /proc and /sys each would show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.rig.knobs import Knob, Link
from tests.rig.machines import g4dn_metal, generic, hardware, kernel, p5, power9
from tests.rig.machines.model import Machine

_MACHINES: Mapping[str, Callable[[], Machine]] = {
    "generic": generic.machine,
    "p5": p5.machine,
    "g4dn_metal": g4dn_metal.machine,
    "power9": power9.machine,
}
NAMES = tuple(_MACHINES)

# What of a tree goes over a host's own: folders and files that every kernel has.
BINDS = (
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/devices/system",
    "/sys/kernel/mm",
    "/sys/module",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/driver",
    "/proc/interrupts",
    "/proc/irq",
    "/proc/meminfo",
    "/proc/swaps",
    "/proc/sys/fs",
    "/proc/sys/kernel",
    "/proc/sys/net/core",
    "/proc/sys/vm",
)
# What shows through a bound folder, as it belongs to the host's namespaces and is real there.
KEPT = (*(f"{kernel.KERNEL}/{name}" for name in kernel.OF_NAMESPACES), f"{kernel.CORE}/somaxconn")


def machine(name: str) -> Machine:
    """A machine by name."""
    return _MACHINES[name]()


def tree(name: str, root: Path | None = None) -> dict[str, Knob | Link]:
    """Every file of a machine's /proc and /sys by path, as after a start from the disk below `root`."""
    shape = machine(name)
    return {**kernel.files(shape, root), **hardware.files(shape), **_folders()}


def _folders() -> dict[str, Knob]:
    # A folder that is bound has to be there, whatever the machine has.
    return {"/proc/driver/rtc": Knob("rtc_time\t: 00:00:00")}


def write_tree(name: str, folder: Path, below: Sequence[str] = ("/",)) -> None:
    """The same as plain files below a folder: for tests that give a Host another root; no write is checked there.

    `below` limits it to parts of the tree: all of a large machine is thousands of files, and takes a second or two.
    """
    nodes = {path: node for path, node in tree(name).items() if path.startswith(tuple(below))}
    for parent in {path.rpartition("/")[0] for path in nodes}:
        Path(f"{folder}{parent}").mkdir(parents=True, exist_ok=True)
    for path, node in nodes.items():
        if isinstance(node, Link):
            Path(f"{folder}{path}").symlink_to(node)
        else:
            Path(f"{folder}{path}").write_text(node.read())
