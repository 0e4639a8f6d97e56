"""All that a run of NCCL depends on, collected in one trip and judged by nobody here.

Every subject is a mapping of plain values. A value that could not be read is None, and `unread` says why: never 0,
never empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..host import Host
from . import gpu, jobs, limits, login, names, peer_memory, programs, rdma, reach

Subject = Callable[[Host, Mapping[str, Any]], dict[str, Any]]

SUBJECTS: dict[str, Subject] = {
    "gpu": gpu.read,
    "rdma": rdma.read,
    "peer_memory": peer_memory.read,
    "limits": limits.read,
    "programs": programs.read,
    "names": names.read,
    "jobs": jobs.read,
    "reach": reach.read,
}


def gather(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Every subject, all at the same time: nvidia-smi alone may take seconds.

    The request may have `peers` (a list of {name, address}: who to log in to from here), `look_up` (the same: whose
    names to resolve), `folders` (where the tests and mpirun are looked for besides the usual places) and `only` (some
    of SUBJECTS; all where it is missing).
    """
    asked = {**request, "user": login.who(host)}
    wanted = {name: read for name, read in SUBJECTS.items() if name in request.get("only", SUBJECTS)}
    started = time.monotonic()
    with ThreadPoolExecutor(len(SUBJECTS)) as pool:
        jobs_ = {name: pool.submit(_read, read, host, asked) for name, read in wanted.items()}
        found = {name: job.result() for name, job in jobs_.items()}
    return {**found, "seconds": round(time.monotonic() - started, 3)}


def _read(read: Subject, host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """One subject; what stops it as a whole is its reason, and takes no other subject along."""
    try:
        return read(host, request)
    except OSError as error:
        return {"unread": {"*": f"{error.filename}: {error.strerror}" if error.filename else str(error)}}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return {"unread": {"*": f"not understood: {type(error).__name__}: {error}"}}
