"""Asks all pods at the same time, one trip each; what a pod does not tell is said with the reason."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from gpuctl.cluster.doctor import program
from gpuctl.cluster.doctor.model import Inside
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.pod_status import runs
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import Command, NotStarted
from gpuctl.remote import connection, packing
from gpuctl.remote.model import RUNS

AT_ONCE = 64
NEAR = 16  # of many pods each looks for the next so many, and the first: each is looked for by as many
SAMPLE_S = 1.0
HOSTFILE = "/job/hostfile"
FOLDERS = ("/dev/shm", "/workspace", "/datasets", "/tmp", "/")  # noqa: S108 - in the pod
ASKING = "ask a pod what it is like"


@dataclass(frozen=True)
class Way:
    """`python`: the program there that runs ours. `limit_s`: how long a pod may take."""

    cluster: Cluster
    python: str = "python3"
    limit_s: float = 30.0
    stop: Stop = field(default_factory=Stop)


def ask_all(way: Way, env: Environment, pods: Mapping[str, Object]) -> dict[str, Inside]:
    """What each pod says of itself; Ctrl-C ends what runs there, too."""
    names = list(pods)
    with ThreadPoolExecutor(min(AT_ONCE, len(names)) or 1) as pool:
        jobs = {name: pool.submit(_ask, way, pods[name], request(env, names, name)) for name in names}
        try:
            return {name: job.result() for name, job in jobs.items()}
        except BaseException:
            way.stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def request(env: Environment, names: Sequence[str], name: str) -> dict[str, Any]:
    """What one pod is asked: of its neighbours those that come after it, and the first, which all ranks meet at."""
    at = list(names).index(name)
    after = [names[(at + step) % len(names)] for step in range(1, len(names))]
    hosts = {env.pod_name(rank): env.host(rank) for rank in range(env.nodes)}
    close = dict.fromkeys([*after[:NEAR], *([names[0]] if at else [])])
    ports = env.cluster.ports
    return {
        "names": [hosts[each] for each in [name, *close] if each in hosts],
        "ssh": [{"pod": each, "host": hosts[each], "port": ports.ssh} for each in close if each in hosts],
        "master": {"host": env.host(0), "port": ports.master},
        "hostfile": HOSTFILE,
        "runs": RUNS,
        "folders": [*FOLDERS, *env.cluster.storage.folders],
        "sample_s": SAMPLE_S,
    }


def _ask(way: Way, pod: Object, asked: Mapping[str, Any]) -> Inside:
    name = pod["metadata"]["name"]
    if not runs(pod, CONTAINER):
        return Inside(why="it does not run")
    token = f"gpuctl-{secrets.token_hex(8)} "
    text = program.question({**asked, "token": token, "limit_s": way.limit_s})
    said: list[bytes] = []
    try:
        argv = packing.command(way.python)
        started = pod_exec.start(way.cluster, name, Command(argv, CONTAINER, way.limit_s + 10, way.stop))
        with contextlib.closing(started) as running:
            with contextlib.suppress(EOFError):  # it ended before it had read all
                running.send(text)
            while part := running.read():
                said.append(part)
            done = running.done()
    except NotStarted as error:
        missing = connection.no_python(ASKING, way.python, error.wrong)
        return Inside(why=missing.wrong, hint=missing.hint)
    except pod_exec.BrokenOff:
        raise
    except GpuctlError as error:
        return Inside(why=f"it cannot be asked: {error.wrong}", hint=error.hint)
    return _told(b"".join(said), token, done, way.python)


def _told(printed: bytes, token: str, done: pod_exec.Done, python: str) -> Inside:
    try:
        found = program.answer(printed, token)
    except ValueError as error:
        return Inside(why=f"its answer is not understood: {error}")
    if found is not None:
        return Inside(found)
    ended = connection.explain_exit(done, ASKING, python)
    return Inside(why=ended.wrong, hint=ended.hint)
