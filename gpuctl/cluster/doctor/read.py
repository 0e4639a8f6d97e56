"""Read an environment's objects, events and logs from its cluster; nothing runs in a pod."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuctl.cluster import manifests
from gpuctl.cluster.clusterfile.model import Cluster as File
from gpuctl.cluster.deploy import checks, read_snapshot, status
from gpuctl.cluster.deploy.cluster_snapshot import Maybe
from gpuctl.cluster.deploy.model import ObjectState
from gpuctl.cluster.doctor.model import Facts, Log
from gpuctl.cluster.environment import CONTAINER, Environment, Object
from gpuctl.cluster.sync.targets import natural
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.core.errors import GpuctlError
from gpuctl.core.redact import removed
from gpuctl.domain.pod_status import statuses
from gpuctl.edges.kube.api import Budget
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Request

AT_ONCE = 16
EVENTS_OF = ("Pod", "StatefulSet", "PersistentVolumeClaim")
LINES, SILENT_S = 400, 20.0
MOST_OF_A_LOG = 2**26  # bytes of these lines: the whole of a progress bar is one
MOST_TEXT, WIDEST = 1 << 16, 4000  # characters of a log, and of a line in it
MOST_LOGS = 64  # pods whose logs are read
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?")


def read_facts(cluster: Cluster, file: File, name: str = "", single: bool = False) -> Facts:
    """Read all facts except `inside`; `Unreachable` if the cluster does not answer."""
    env, mode = status.deployed(cluster, file, name, single)
    states = read_snapshot.object_states(cluster, manifests.everything(env))
    snapshot = read_snapshot.take_snapshot(cluster, env, states)
    pods = cluster.find(cluster.kind("v1", "Pod"), env.selector)
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    events: Maybe[list[Object]] = read_snapshot.attempt(lambda: _events(cluster), [])
    return Facts(
        env=env,
        mode=mode,
        owner=_live(states, "StatefulSet"),
        pods={pod: by_name[pod] for pod in sorted(by_name, key=natural)},
        missing=[state.subject for state in states if state.missing],
        snapshot=snapshot,
        preflight=checks.all_of(env, snapshot, states),
        events=events.value,
        events_why=events.why,
        logs=_logs(cluster, env, by_name),
        now=cluster.now,
    )


def _live(states: list[ObjectState], kind: str) -> Object | None:
    return next((state.live for state in states if state.live and state.desired["kind"] == kind), None)


def _events(cluster: Cluster) -> list[Object]:
    kind = cluster.kind("v1", "Event")
    return [event for about in EVENTS_OF for event in cluster.find_by(kind, f"involvedObject.kind={about}")]


# ---- logs -----------------------------------------------------------------------------------------------------------


def _logs(cluster: Cluster, env: Environment, pods: Mapping[str, Object]) -> dict[str, Log]:
    """Read the logs of at most MOST_LOGS pods: those that are not ready or were restarted, then the first ones."""
    chosen = sorted(pods, key=lambda name: (_calm(pods[name]), natural(name)))[:MOST_LOGS]
    stop = Stop()
    with AbandonablePool(min(AT_ONCE, len(chosen)) or 1) as pool:
        jobs = {name: pool.submit(_log, cluster, pods[name], stop) for name in chosen}
        try:
            return {name: job.result() for name, job in jobs.items()}
        except BaseException:
            stop.set()
            raise


def _calm(pod: Object) -> bool:
    return all(container.get("ready") and not container.get("restartCount") for container in statuses(pod))


def _log(cluster: Cluster, pod: Object, stop: Stop) -> Log:
    """Read the log of the most telling container; empty if none has run yet."""
    started = _has_run(pod)
    if not started:
        return Log()
    container, again = started
    try:
        now = _lines(cluster, pod, container, stop)
    except GpuctlError as error:
        return Log(why=error.wrong)
    before: Sequence[str] = ()
    if again:
        with contextlib.suppress(GpuctlError):  # the kubelet keeps only the last log, and not forever
            before = _lines(cluster, pod, container, stop, ("previous", "true")).lines
    return Log(now.lines, before, times=now.times)


def _has_run(pod: Object) -> tuple[str, bool] | None:
    """Return (container whose log matters, restarted): a failed init container, else the main one."""
    init = (pod.get("status") or {}).get("initContainerStatuses") or []
    failed = [container for container in init if not container.get("ready") and _ran(container)]
    for container in [*failed, *(main for main in statuses(pod) if main["name"] == CONTAINER)]:
        if _ran(container):
            restarted = bool(container.get("restartCount")) and "running" in (container.get("state") or {})
            return str(container["name"]), restarted
    return None


def _ran(status: Object) -> bool:
    states = [status.get("state") or {}, status.get("lastState") or {}]
    return any(word in state for state in states for word in ("running", "terminated"))


@dataclass(frozen=True)
class LogLines:
    """Lines without secrets, and their times in seconds since 1970; None if unknown."""

    lines: Sequence[str]
    times: Sequence[float | None]


def _lines(cluster: Cluster, pod: Object, container: str, stop: Stop, *more: tuple[str, str]) -> LogLines:
    name = pod["metadata"]["name"]
    path = f"{cluster.path_of(cluster.kind('v1', 'Pod'), name)}/log"
    query = [("container", container), ("tailLines", str(LINES)), ("timestamps", "true"), *more]
    request = Request(f"read the log of {name}", "GET", path, query, budget=Budget(MOST_OF_A_LOG))
    return parse_log(cluster.lines(request, stop, SILENT_S))


def parse_log(lines: Iterable[str]) -> LogLines:
    """Parse log lines with the kubelet's timestamps; its own messages have none. Only the last MOST_TEXT characters.

    Of a progress bar only the last step is kept: redacting every step takes minutes.
    """
    pairs = [(time, _shown(text)) for time, text in map(_timed, lines)]
    while sum(len(part) for _, part in pairs) > MOST_TEXT:
        del pairs[: len(pairs) // 8 + 1]
    kept = removed("\n".join(part for _, part in pairs))[0].split("\n") if pairs else []
    # A redacted multi-line secret removes lines, after which the times cannot be assigned.
    return LogLines(kept, [time for time, _ in pairs] if len(kept) == len(pairs) else [None] * len(kept))


def _shown(text: str) -> str:
    """Return the last visible state of a line with carriage returns."""
    return next((part[:WIDEST] for part in reversed(text.splitlines()) if part.strip()), "")


def _timed(line: str) -> tuple[float | None, str]:
    match = TIME.match(line)
    if match is None:
        return None, line
    return datetime.fromisoformat(match[1]).timestamp(), line[match.end() :]
