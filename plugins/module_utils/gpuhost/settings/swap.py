"""A swap area that is in use: "swap:/dev/sda3", text "on priority=-2" or None when it is off."""

from __future__ import annotations

from typing import NamedTuple

from ..host import Host


class Area(NamedTuple):
    """A row of /proc/swaps; sizes in KiB."""

    path: str
    size: int
    used: int
    priority: int


def areas(host: Host) -> list[Area]:
    """The swap areas in use; OSError where /proc/swaps cannot be read."""
    rows = [line.split() for line in host.read("/proc/swaps").splitlines()[1:] if line.strip()]
    # A space in a file's name is written as \\040 by the kernel.
    return [Area(row[0].replace("\\040", " "), int(row[2]), int(row[3]), int(row[4])) for row in rows]


class Swap:
    """One swap area, on or off."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, host: Host) -> str | None:
        return next((f"on priority={a.priority}" for a in areas(host) if a.path == self.path), None)

    def write(self, host: Host, text: str | None) -> None:
        if text is None:
            argv = ["swapoff", self.path]
        else:
            priority = text.rpartition("=")[2]
            # The kernel gives negative priorities itself and refuses them from outside.
            argv = ["swapon", *(["-p", priority] if int(priority) >= 0 else []), self.path]
        # Pages come back from disk at the disk's speed: a full area may take many minutes.
        done = host.run(*argv, changes=True, limit=1800)
        if not done.ok:
            raise RuntimeError(f"{argv[0]} {self.path}: {done.said}")
