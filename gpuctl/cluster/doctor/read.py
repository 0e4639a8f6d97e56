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
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Request

AT_ONCE = 16
EVENTS_OF = ("Pod", "StatefulSet", "PersistentVolumeClaim")
LINES, SILENT_S = 400, 20.0
MOST_TEXT, WIDEST = 1 << 16, 4000  # characters of a log, and of a line in it
MOST_LOGS = 64  # pods whose logs are read
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?")


def look(cluster: Cluster, file: File, name: str = "", single: bool = False) -> Facts:
    """Everything of it but what pods say of themselves; `Unreachable` where the cluster does not answer."""
    env, mode = status.deployed(cluster, file, name, single)
    standing = read_snapshot.object_states(cluster, manifests.everything(env))
    there = read_snapshot.take_snapshot(cluster, env, standing)
    pods = cluster.find(cluster.kind("v1", "Pod"), env.selector)
    by_name = {each["metadata"]["name"]: each for each in pods}
    events: Maybe[list[Object]] = read_snapshot.attempt(lambda: _events(cluster), [])
    return Facts(
        env=env,
        mode=mode,
        owner=_live(standing, "StatefulSet"),
        pods={each: by_name[each] for each in sorted(by_name, key=natural)},
        missing=[each.subject for each in standing if each.missing],
        there=there,
        preflight=checks.all_of(env, there, standing),
        events=events.value,
        events_why=events.why,
        logs=_logs(cluster, env, by_name),
        now=cluster.now,
    )


def _live(standing: list[ObjectState], kind: str) -> Object | None:
    return next((each.live for each in standing if each.live and each.desired["kind"] == kind), None)


def _events(cluster: Cluster) -> list[Object]:
    kind = cluster.kind("v1", "Event")
    return [each for about in EVENTS_OF for each in cluster.find_by(kind, f"involvedObject.kind={about}")]


# ---- logs -----------------------------------------------------------------------------------------------------------


def _logs(cluster: Cluster, env: Environment, pods: Mapping[str, Object]) -> dict[str, Log]:
    """Of every pod; of very many those that are in trouble, or the first."""
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
    return all(each.get("ready") and not each.get("restartCount") for each in statuses(pod))


def _log(cluster: Cluster, pod: Object, stop: Stop) -> Log:
    """A container that has never run has none, which is nothing to wonder at."""
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
        with contextlib.suppress(GpuctlError):  # the kubelet keeps only the last one, and not for ever
            before = _lines(cluster, pod, container, stop, ("previous", "true")).lines
    return Log(now.lines, before, times=now.times)


def _has_run(pod: Object) -> tuple[str, bool] | None:
    """The container whose log tells most, and whether it was started before: the one that stops the pod's start."""
    init = (pod.get("status") or {}).get("initContainerStatuses") or []
    failed = [each for each in init if not each.get("ready") and _ran(each)]
    for each in [*failed, *(each for each in statuses(pod) if each["name"] == CONTAINER)]:
        if _ran(each):
            return str(each["name"]), bool(each.get("restartCount")) and "running" in (each.get("state") or {})
    return None


def _ran(status: Object) -> bool:
    states = [status.get("state") or {}, status.get("lastState") or {}]
    return any(word in state for state in states for word in ("running", "terminated"))


@dataclass(frozen=True)
class Said:
    """Lines without secrets, and when each was said."""

    lines: Sequence[str]
    times: Sequence[float | None]


def _lines(cluster: Cluster, pod: Object, container: str, stop: Stop, *more: tuple[str, str]) -> Said:
    name = pod["metadata"]["name"]
    path = f"{cluster.path_of(cluster.kind('v1', 'Pod'), name)}/log"
    query = [("container", container), ("tailLines", str(LINES)), ("timestamps", "true"), *more]
    return said(cluster.lines(Request(f"read the log of {name}", "GET", path, query), stop, SILENT_S))


def said(lines: Iterable[str]) -> Said:
    """Lines as the kubelet gives them, each with its time in front; what it says itself has none.

    The last of them, as a terminal would show them: to look for secrets in every step of a progress bar takes minutes.
    """
    pairs = [(time, _shown(text)) for time, text in map(_timed, lines)]
    while sum(len(part) for _, part in pairs) > MOST_TEXT:
        del pairs[: len(pairs) // 8 + 1]
    kept = removed("\n".join(part for _, part in pairs))[0].split("\n") if pairs else []
    # A secret of several lines is taken out as one: then nobody knows which time is whose.
    return Said(kept, [time for time, _ in pairs] if len(kept) == len(pairs) else [None] * len(kept))


def _shown(text: str) -> str:
    """Of a line that was written over again and again, the last."""
    return next((part[:WIDEST] for part in reversed(text.splitlines()) if part.strip()), "")


def _timed(line: str) -> tuple[float | None, str]:
    found = TIME.match(line)
    if found is None:
        return None, line
    return datetime.fromisoformat(found[1]).timestamp(), line[found.end() :]
