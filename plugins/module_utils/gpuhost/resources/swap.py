"""A swap area that is in use: "swap:/dev/sda3", text "on priority=5", "on" or None when it is off."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..host import Host


class Area(NamedTuple):
    """A row of /proc/swaps; sizes in KiB."""

    path: str
    size: int
    used: int
    priority: int

    @property
    def state(self) -> str:
        """The kernel gives negative priorities itself, in the order in which areas come; it takes none from us."""
        return f"on priority={self.priority}" if self.priority >= 0 else "on"


def areas(host: Host) -> list[Area]:
    """The swap areas in use; OSError where /proc/swaps cannot be read."""
    rows = [line.split() for line in host.read("/proc/swaps").splitlines()[1:] if line.strip()]
    return [Area(_unescaped(path), int(size), int(used), int(rank)) for path, _, size, used, rank in rows]


def _unescaped(path: str) -> str:
    r"""The kernel writes white space and backslashes in a file's name as \040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), path)


def unit_of(path: str) -> str:
    """The swap unit of an area, as systemd-escape names it."""
    name = re.sub(r"[^A-Za-z0-9:_./]", lambda c: "".join(f"\\x{b:02x}" for b in c.group().encode()), path.strip("/"))
    return name.replace("/", "-") + ".swap"


class Swap:
    """One swap area, on or off."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, host: Host) -> str | None:
        return next((area.state for area in areas(host) if area.path == self.path), None)

    def write(self, host: Host, text: str | None) -> None:
        priority = (text or "").partition("=")[2]
        options = ["-p", priority] if priority else []
        argv = ["swapoff", self.path] if text is None else ["swapon", *options, self.path]
        # Pages come back from disk at the disk's speed: a full area may take many minutes.
        done = host.run(*argv, changes=True, limit=1800)
        # An area that has to be made first, such as zram after a reboot, comes with its unit alone.
        if not done.ok and (text is None or not self._start(host)):
            raise RuntimeError(f"{argv[0]} {self.path}: {done.said}")

    def _start(self, host: Host) -> bool:
        return host.run("systemctl", "start", "--", unit_of(self.path), changes=True).ok
