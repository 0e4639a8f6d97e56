"""The memory allocators gpuctl can put under a program: where distributions keep them, how they are configured."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from .host import Host


class Allocator(NamedTuple):
    """File names of the library, best first, and the environment it is run with."""

    libraries: tuple[str, ...]
    environment: dict[str, str]
    packages: str


ALLOCATORS = {
    "jemalloc": Allocator(
        ("libjemalloc.so.2",),
        # Freed memory goes back within half a minute, by a thread of jemalloc's own and not by the program's.
        {"MALLOC_CONF": "background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:30000"},
        "libjemalloc2 (Debian, Ubuntu) or jemalloc (RHEL family, from EPEL)",
    ),
    "tcmalloc": Allocator(
        ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
        # 32 MiB for the caches of all threads together is its default: too little for a host's many loader threads.
        {"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": "268435456", "TCMALLOC_RELEASE_RATE": "10"},
        "libtcmalloc-minimal4 or -minimal4t64 (Debian, Ubuntu), gperftools-libs (RHEL family, from EPEL)",
    ),
}
# Two allocators in one process end in a crash; these are the ones people preload.
OTHER = re.compile(r"lib(jemalloc|tcmalloc|mimalloc|tbbmalloc|hoard|snmalloc|rpmalloc|scalloc|lockless)[\w.-]*$")


def folders() -> tuple[str, ...]:
    """Where distributions keep libraries of this machine's own kind."""
    return (f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


def library(host: Host, name: str) -> str | None:
    """The path of an allocator's library; None where it is not installed."""
    candidates = (f"{folder}/{file}" for file in ALLOCATORS[name].libraries for folder in folders())
    return next((path for path in candidates if host.exists(path)), None)


def preloaded(ld_preload: str) -> list[str]:
    """The allocators that an LD_PRELOAD holds. The loader takes spaces and colons between its entries."""
    return [entry for entry in re.split(r"[\s:]+", ld_preload) if OTHER.search(entry)]
