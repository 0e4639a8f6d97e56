"""All facts that an NCCL run depends on, collected in one trip.

Every subject is a mapping of plain values. A value that could not be read is None, never 0 or empty, and `unread` has
the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..host import Host
from . import gpu, jobs, limits, login, names, peer_memory, programs, rdma, reach

Subject = Callable[[Host, Mapping[str, Any]], Mapping[str, Any]]

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


def _gds(host: Host, request: Mapping[str, Any]) -> Mapping[str, Any]:
    from . import gds  # no run of NCCL needs it

    return gds.read(host, request)


ON_REQUEST: dict[str, Subject] = {"gds": _gds}  # only if `only` names them


def gather(host: Host, request: Mapping[str, Any], all_subjects: Mapping[str, Subject] = SUBJECTS) -> dict[str, Any]:
    """Read all subjects in parallel, as nvidia-smi alone may take seconds.

    Optional keys of the request: `peers` ([{name, address}] to log in to from this host), `look_up` ([{name, address}]
    to resolve), `folders` (to search for the tests and mpirun besides the usual ones), `only` (names of
    subjects), and those of a subject's own.
    """
    request_with_user = {**request, "user": login.login_user(host)}
    only = request.get("only", all_subjects)
    subjects = {name: read for name, read in {**all_subjects, **ON_REQUEST}.items() if name in only}
    started = time.monotonic()
    with ThreadPoolExecutor(len(all_subjects)) as pool:
        futures = {name: pool.submit(_read, read, host, request_with_user) for name, read in subjects.items()}
        facts = {name: job.result() for name, job in futures.items()}
    return {**facts, "seconds": round(time.monotonic() - started, 3)}


def gather_use(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{use, seconds}: users of the GPUs (gpu_use.py)."""
    from . import gpu_use  # no run of NCCL needs it

    started = time.monotonic()
    return {"use": _read(gpu_use.read, host, request), "seconds": round(time.monotonic() - started, 3)}


def gather_storage_load(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{storage_load}: load of the node's storage, and a trial of reading (storage_load.py)."""
    from . import storage_load  # only a search for a cause of slow storage needs it

    return {"storage_load": _read(storage_load.read, host, request)}


def _read(read: Subject, host: Host, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """One subject; an error of the whole subject becomes its reason under "*"."""
    try:
        return read(host, request)
    except OSError as error:
        return {"unread": {"*": f"{error.filename}: {error.strerror}" if error.filename else str(error)}}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return {"unread": {"*": f"not understood: {type(error).__name__}: {error}"}}
