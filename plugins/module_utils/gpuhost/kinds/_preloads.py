"""Other owners of LD_PRELOAD: two allocators in one process crash it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..allocators import preloaded
from ..host import Host
from ..model import Conflict
from ..resources.services import Service

EVERYWHERE = "/etc/ld.so.preload"
LOGINS = "/etc/environment"


def by_its_unit(host: Host, service: Service, *ours: str) -> list[Conflict]:
    """Lines of the unit's files, and of its environment files, that set LD_PRELOAD."""
    paths = [path for path in (*service.files, *service.environment_files) if path not in ours]
    lines = [line for path in paths for line in _lines(host, path)]
    # Only this part of the line, as the rest may be secret.
    preloads = [(where, re.search(r"LD_PRELOAD=\S*", text)) for where, text in lines]
    return [Conflict(service.name, where, part.group(), wins=True) for where, part in preloads if part]


def by_the_host(host: Host, allocator: str) -> list[Conflict]:
    """Allocators preloaded for all programs; those in /etc/environment never win, as services do not read it."""
    conflicts = []
    for path, owner in ((EVERYWHERE, "every program"), (LOGINS, "logins")):
        for where, text in _lines(host, path):
            value = text if path == EVERYWHERE else text.partition("LD_PRELOAD=")[2].strip("\"'")
            for library in preloaded(value):
                wins = path == EVERYWHERE and f"lib{allocator}" not in library
                conflicts.append(Conflict(owner, where, library, wins))
    return conflicts


def _lines(host: Host, path: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate((host.read_or_none(path) or "").splitlines(), 1):
        text = line.strip()
        if text and not text.startswith(("#", ";")):
            yield f"{path}:{number}", text
