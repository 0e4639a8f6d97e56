"""A swap area: "swap:/dev/sda3", text "on priority=5" or "on", None if it is off."""

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
        """Text of the area, without a negative priority: the kernel assigns those itself."""
        return f"on priority={self.priority}" if self.priority >= 0 else "on"


def areas(host: Host) -> list[Area]:
    """Swap areas in use; OSError if /proc/swaps cannot be read."""
    rows = [line.split() for line in host.read("/proc/swaps").splitlines()[1:] if line.strip()]
    return [Area(_unescaped(path), int(size), int(used), int(rank)) for path, _, size, used, rank in rows]


def _unescaped(path: str) -> str:
    r"""Decode the kernel's octal escapes of white space and backslashes, such as \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)


def unit_of(path: str) -> str:
    """The swap unit of an area, named as by systemd-escape."""
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
        # swapoff reads all pages back from the disk: a full area may take many minutes.
        done = host.run(*argv, changes=True, limit=1800)
        # Only its unit can create an area such as zram after a reboot.
        if not done.ok and (text is None or not self._start(host)):
            raise RuntimeError(f"{argv[0]} {self.path}: {done.last_line}")

    def _start(self, host: Host) -> bool:
        return host.run("systemctl", "start", "--", unit_of(self.path), changes=True).ok
