"""Run the probe in all pods at the same time, and collect their answers."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from gpuctl.cluster.doctor import program
from gpuctl.cluster.doctor.model import PodFacts
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.pod_status import runs
from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.pod_exec import Command, NotStarted
from gpuctl.engine import typed_json, visit_failures
from gpuctl.remote import connection, packing
from gpuctl.remote.model import RUNS

AT_ONCE = 64
NEAR = 16  # a pod connects to this many following pods and the first, so that every pod is tried equally often
SAMPLE_S = 1.0
HOSTFILE = "/job/hostfile"
FOLDERS = ("/dev/shm", "/workspace", "/datasets", "/tmp", "/")  # noqa: S108 - in the pod
PROBING = "probe a pod"


@dataclass(frozen=True)
class ProbeOptions:
    """`python`: the interpreter in the pods. `limit_s`: time limit of each pod."""

    cluster: Cluster
    python: str = "python3"
    limit_s: float = 30.0
    stop: Stop = field(default_factory=Stop)


def probe_all(options: ProbeOptions, env: Environment, pods: Mapping[str, Object]) -> dict[str, PodFacts]:
    """Return each pod's answer; Ctrl-C also ends the probes in the pods."""
    names = list(pods)
    with ThreadPoolExecutor(min(AT_ONCE, len(names)) or 1) as pool:
        jobs = {name: pool.submit(_probe, options, pods[name], request(env, names, name)) for name in names}
        try:
            return {name: job.result() for name, job in jobs.items()}
        except BaseException:
            options.stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def request(env: Environment, names: Sequence[str], name: str) -> dict[str, Any]:
    """Build one pod's request. It connects to the NEAR pods after it, and to the first, where all ranks meet."""
    at = list(names).index(name)
    after = [names[(at + step) % len(names)] for step in range(1, len(names))]
    hosts = {env.pod_name(rank): env.host(rank) for rank in range(env.nodes)}
    close = dict.fromkeys([*after[:NEAR], *([names[0]] if at else [])])
    ports = env.cluster.ports
    return {
        "names": [hosts[pod] for pod in [name, *close] if pod in hosts],
        "ssh": [{"pod": pod, "host": hosts[pod], "port": ports.ssh} for pod in close if pod in hosts],
        "master": {"host": env.host(0), "port": ports.master},
        "hostfile": HOSTFILE,
        "runs": RUNS,
        "folders": [*FOLDERS, *env.cluster.storage.folders],
        "sample_s": SAMPLE_S,
        "window_s": SAMPLE_S,
    }


def _probe(options: ProbeOptions, pod: Object, request: Mapping[str, Any]) -> PodFacts:
    name = pod["metadata"]["name"]
    if not runs(pod, CONTAINER):
        return PodFacts(why="its container is not running")
    token = f"gpuctl-{secrets.token_hex(8)} "
    text = program.encode({**request, "token": token, "limit_s": options.limit_s})
    output = bytearray()
    try:
        argv = packing.command(options.python)
        started = pod_exec.start(options.cluster, name, Command(argv, CONTAINER, options.limit_s + 10, options.stop))
        with contextlib.closing(started) as running:
            with contextlib.suppress(EOFError):  # the program ended before it read everything
                running.send(text)
            while part := running.read():
                output += part
                if len(output) > visit_failures.MOST_OUTPUT:
                    return PodFacts(why=visit_failures.TOO_MUCH_OUTPUT, hint=visit_failures.PRINTS_ENDLESSLY)
            done = running.done()
    except NotStarted as error:
        missing = connection.no_python(PROBING, options.python, error.wrong)
        return PodFacts(why=missing.wrong, hint=missing.hint)
    except pod_exec.BrokenOff:
        raise
    except GpuctlError as error:
        return PodFacts(why=f"it cannot be probed: {error.wrong}", hint=error.hint)
    answer = _parse(bytes(output), token, request)
    if answer is not None:
        return answer
    failure = connection.explain_exit(done, PROBING, options.python)
    return PodFacts(why=failure.wrong, hint=failure.hint)


def _parse(printed: bytes, token: str, request: Mapping[str, Any]) -> PodFacts | None:
    """Facts in a pod's output; None if it has no answer."""
    try:
        answer = program.decode(printed, token)
        missing = program.left_out(request, answer) if answer else ""
    except typed_json.Misfit as error:
        return PodFacts(why=f"its answer makes no sense: {error}")
    except ValueError as error:
        return PodFacts(why=f"its answer cannot be decoded: {error}")
    if missing:
        return PodFacts(why=f"its answer makes no sense: {missing} is missing")
    return None if answer is None else PodFacts(answer)
