"""What a running service maps as its allocator: "restart:trainer.service"; changing it means starting it again."""

from __future__ import annotations

import re

from ..allocators import ALLOCATORS
from ..host import Host
from .unit import show

DEFAULT = "the C library's"


def mapped(host: Host, pid: str) -> str | None:
    """The allocator in a process's own map of its memory; None where it is not running."""
    maps = host.read_or_none(f"/proc/{pid}/maps") if pid not in ("", "0") else None
    if maps is None:
        return None
    found = (name for name, known in ALLOCATORS.items() if any(f"/{lib}" in maps for lib in _names(known.libraries)))
    return next(found, DEFAULT)


def _names(libraries: tuple[str, ...]) -> list[str]:
    """A library's name without its version: what is mapped is the file behind the link."""
    return [re.sub(r"\.so.*", ".so", library) for library in libraries]


class Restart:
    """One service; its text is the allocator its main process runs with, None where it does not run."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def read(self, host: Host) -> str | None:
        return mapped(host, show(host, self.unit)[self.unit]["MainPID"])

    def write(self, host: Host, text: str | None) -> None:
        done = host.run("systemctl", "restart", "--", self.unit, changes=True, limit=300)
        if not done.ok:
            raise RuntimeError(f"systemctl restart {self.unit}: {done.said}")
