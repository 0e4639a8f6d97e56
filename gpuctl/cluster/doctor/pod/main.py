"""Everything that is asked of one pod, in one visit: read, sampled over a moment, and told in one line."""

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

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts import peer_memory, rdma
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.host import Host

from gpuctl.cluster.doctor.pod import disk, gpus, jobs, machine, nccl_logs, network, variables

if TYPE_CHECKING:
    from collections.abc import Callable

    Subject = Callable[[Host, Mapping[str, Any]], Any]
SUBJECTS: dict[str, Subject] = {
    "jobs": jobs.read,
    "words": nccl_logs.read,
    "variables": variables.read,
    "gpu": gpus.read,
    "rdma": rdma.read,
    "peer_memory": peer_memory.read,
    "network": network.read,
    "machine": machine.read,
    "room": disk.read,
}


def main() -> int:
    """Look, and say it: one line with the token in front. Ends by itself, whatever becomes of who asked.

    The request: token, limit_s, sample_s, names, ssh, master, hostfile, runs, folders (see asking.py).
    """
    request = json.loads(_taken(int(_taken(10))))
    signal.signal(signal.SIGALRM, lambda *_: leave())
    signal.alarm(int(request["limit_s"]) + 2)
    threading.Thread(target=_leave_with_the_asker, daemon=True).start()
    found = gather(Host(), request)
    packed = base64.b64encode(zlib.compress(json.dumps(found, ensure_ascii=False).encode(errors="replace"))).decode()
    sys.stdout.write("\n" + request["token"] + packed + "\n")
    sys.stdout.flush()
    leave()
    return 0


def gather(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Each subject by name, all at the same time; what fails or is late says so and takes no other along."""
    pool = ThreadPoolExecutor(len(SUBJECTS))
    asked = {name: pool.submit(read, host, request) for name, read in SUBJECTS.items()}
    limit_s, began = float(request["limit_s"]), time.monotonic()
    found = {name: _result(job, limit_s, limit_s + began - time.monotonic()) for name, job in asked.items()}
    pool.shutdown(wait=False)
    return found


def _result(job: Future[Any], limit_s: float, left_s: float) -> Any:
    """All have the same end: two that hang are not to take twice the time, in which the whole answer would be lost."""
    try:
        return job.result(max(0.0, left_s))
    except Late:
        return {"unread": {"*": f"no answer within {limit_s:g} s"}}
    except OSError as error:
        return {"unread": {"*": f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")}}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return {"unread": {"*": f"not understood: {type(error).__name__}: {error}"}}


def _taken(size: int) -> bytes:
    text = b""
    while len(text) < size:
        more = os.read(0, size - len(text))
        if not more:
            leave()
        text += more
    return text


def _leave_with_the_asker() -> None:
    """Our input ends when the connection does: then nobody listens any more."""
    os.read(0, 1)
    leave()


def leave() -> None:
    """End at once, with what we started: each in a session of its own."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                os.killpg(int(path.parent.name), signal.SIGKILL)
    os._exit(0)
