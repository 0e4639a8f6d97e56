"""Who else preloads a library into a service: two allocators in one process end in a crash."""

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
    """Lines of the unit's own files, and of the environment files it reads, that set LD_PRELOAD."""
    paths = [path for path in (*service.files, *service.environment_files) if path not in ours]
    lines = [line for path in paths for line in _lines(host, path)]
    # Nothing but this part of the line: the rest may hold a secret.
    found = [(where, re.search(r"LD_PRELOAD=\S*", text)) for where, text in lines]
    return [Conflict(service.name, where, part.group(), wins=True) for where, part in found if part]


def by_the_host(host: Host, allocator: str) -> list[Conflict]:
    """Allocators that are put under everything. Services do not read /etc/environment: it is named, no more."""
    found = []
    for path, owner in ((EVERYWHERE, "every program"), (LOGINS, "logins")):
        for where, text in _lines(host, path):
            given = text if path == EVERYWHERE else text.partition("LD_PRELOAD=")[2].strip("\"'")
            for library in preloaded(given):
                wins = path == EVERYWHERE and f"lib{allocator}" not in library
                found.append(Conflict(owner, where, library, wins))
    return found


def _lines(host: Host, path: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate((host.read_or_none(path) or "").splitlines(), 1):
        text = line.strip()
        if text and not text.startswith(("#", ";")):
            yield f"{path}:{number}", text
