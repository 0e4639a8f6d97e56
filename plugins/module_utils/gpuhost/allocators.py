"""Memory allocators that gpuctl can preload: library paths of the distributions, and settings."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from .host import Host


class Allocator(NamedTuple):
    """File names of the library, preferred first; the environment it runs with; the packages that ship it."""

    libraries: tuple[str, ...]
    environment: dict[str, str]
    packages: str


ALLOCATORS = {
    "jemalloc": Allocator(
        ("libjemalloc.so.2",),
        # A background thread, not the program's own, returns freed memory within half a minute.
        {"MALLOC_CONF": "background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:30000"},
        "libjemalloc2 (Debian, Ubuntu) or jemalloc (RHEL family, from EPEL)",
    ),
    "tcmalloc": Allocator(
        ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
        # The default for the caches of all threads together, 32 MiB, is too little for many loader threads.
        {"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": "268435456"},
        "libtcmalloc-minimal4 or -minimal4t64 (Debian, Ubuntu), gperftools-libs (RHEL family, from EPEL)",
    ),
}
# Two allocators in one process crash it; these are the ones that people preload.
OTHER = re.compile(r"lib(jemalloc|tcmalloc|mimalloc|tbbmalloc|hoard|snmalloc|rpmalloc|scalloc|lockless)[\w.-]*$")


def folders() -> tuple[str, ...]:
    """Library folders of the distributions, for this machine's architecture."""
    return (f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


def library(host: Host, name: str) -> str | None:
    """Path of an allocator's library; None if it is not installed."""
    candidates = (f"{folder}/{file}" for file in ALLOCATORS[name].libraries for folder in folders())
    return next((path for path in candidates if host.exists(path)), None)


def preloaded(ld_preload: str) -> list[str]:
    """Allocator libraries in an LD_PRELOAD value, whose entries are separated by spaces or colons."""
    return [entry for entry in re.split(r"[\s:]+", ld_preload) if OTHER.search(entry)]
