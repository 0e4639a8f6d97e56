"""Entry point of the probe: read all subjects of one pod, and print them as one line."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late  # before Python 3.11 it is not the builtin one
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import peer_memory, rdma, storage_load
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.cluster.doctor.pod import disk, gpus, jobs, machine, nccl_logs, network, variables

if TYPE_CHECKING:
    from collections.abc import Callable

    Subject = Callable[[Host, Mapping[str, Any]], Any]
SUBJECTS: dict[str, Subject] = {
    "jobs": jobs.read,
    "nccl_logs": nccl_logs.read,
    "variables": variables.read,
    "gpu": gpus.read,
    "rdma": rdma.read,
    "peer_memory": peer_memory.read,
    "network": network.read,
    "machine": machine.read,
    "disk": disk.read,
    "storage_load": storage_load.read,
}


def main() -> int:
    """Read the request, and print the answer as one line after the token. It ends by itself even without a client.

    The request: token, limit_s, sample_s, window_s, names, ssh, master, hostfile, runs, folders (probe_pods.request).
    """
    request = json.loads(_read_input(int(_read_input(10))))
    signal.signal(signal.SIGALRM, lambda *_: leave())
    signal.alarm(int(request["limit_s"]) + 2)
    threading.Thread(target=_leave_with_the_connection, daemon=True).start()
    answer = gather(Host(), request)
    packed = base64.b64encode(zlib.compress(json.dumps(answer, ensure_ascii=False).encode(errors="replace"))).decode()
    sys.stdout.write("\n" + request["token"] + packed + "\n")
    sys.stdout.flush()
    leave()
    return 0


def gather(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Read all subjects concurrently; one that fails or is late reports why, and does not affect the others."""
    pool = ThreadPoolExecutor(len(SUBJECTS))
    jobs_by_subject = {name: pool.submit(read, host, request) for name, read in SUBJECTS.items()}
    limit_s, began = float(request["limit_s"]), time.monotonic()
    answers = {name: _result(job, limit_s, limit_s + began - time.monotonic()) for name, job in jobs_by_subject.items()}
    pool.shutdown(wait=False)
    return answers


def _result(job: Future[Any], limit_s: float, left_s: float) -> Any:
    """Wait for a subject until the common deadline: two that hang must not take twice the time and lose the answer."""
    try:
        return job.result(max(0.0, left_s))
    except Late:
        return {"unread": {"*": f"no answer within {limit_s:g} s"}}
    except OSError as error:
        return {"unread": {"*": f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")}}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return {"unread": {"*": f"not understood: {type(error).__name__}: {error}"}}


def _read_input(size: int) -> bytes:
    text = b""
    while len(text) < size:
        more = os.read(0, size - len(text))
        if not more:
            leave()
        text += more
    return text


def _leave_with_the_connection() -> None:
    """End when the input does, because the connection is gone."""
    os.read(0, 1)
    leave()


def leave() -> None:
    """Exit at once, and kill the child processes, each with its process group."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                for kill in (os.killpg, os.kill):  # one that has only just begun has no group yet
                    with contextlib.suppress(OSError):
                        kill(int(path.parent.name), signal.SIGKILL)
    os._exit(0)
