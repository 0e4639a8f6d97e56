"""What a launch on Kubernetes came to: what the test printed, how its pods ended, and what we did to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.domain import ranks
from gpuctl.nccl import plan
from gpuctl.nccl.launch import outcome
from gpuctl.nccl.model import LaunchResult, Outcome, Run
from gpuctl.nccl.runners.kube import pod_placement, pod_state
from gpuctl.nccl.runners.kube.model import BROKEN_OFF, LIMIT, Task
from gpuctl.nccl.runners.kube.scripts import MISSING, SILENT
from gpuctl.nccl.runners.kube.worker_report import WorkerReport

Object = dict[str, Any]
LOCKED = (
    "too little memory may be locked for RDMA on {}: no capability of a container reaches its ordinary users; raise "
    "LimitMEMLOCK of the container runtime on the node, or run as root with --user 0"
)


@dataclass(frozen=True)
class LaunchObservations:
    """What is known at the end. `stop`: why we ended it, "" where it ended itself. `never`: why it never began.
    `unknown`: why nobody knows how it ended. `pods`: the last that was seen of them, before we removed any, by place.
    `last`: the last lines that are no rows. `own`: what our own scripts said."""

    stop: str
    never: str
    unknown: str
    pods: Mapping[str, Object]
    last: Sequence[str]
    done_size: str
    lost: tuple[str, ...]
    seconds: float
    own: WorkerReport = field(default_factory=WorkerReport)


def settled(task: Task, runs: Sequence[Run], seen: LaunchObservations) -> LaunchResult:
    """One result; what was done to its pods from outside goes before what the test said of it."""
    if cause := _not_tested(task, seen):
        return LaunchResult(task.launch, Run(Outcome.EMPTY, cause, None, (), None, None), seen.seconds, seen.lost)
    first = seen.pods.get(pod_placement.launcher(task))
    code = pod_state.exit_code(first) if first else None
    # A test that ended while it was looked who waits for whom did end.
    stop = "" if seen.stop == LIMIT and code is not None else seen.stop
    order = replace(task.launch, nodes=pod_placement.in_order_of_workers(task, dict(seen.pods)))
    answer = None if code is None else {"code": code}
    end = outcome.ProgramEnd(stop, answer, None, seen.last, _looks(task, seen), seen.lost, seen.done_size, task.hosts)
    ended = replace(outcome.settle(order, runs, end, seen.seconds), launch=task.launch)
    if stop == LIMIT:
        return _hung(task, ended, runs, seen)
    if stop or ended.run.outcome in (Outcome.COMPLETE, Outcome.CORRUPT):
        return ended
    words = gone(seen.pods, [*pod_placement.workers(task), pod_placement.launcher(task)])
    if words:
        return replace(ended, run=replace(ended.run, outcome=Outcome.KILLED, cause=words))
    return replace(ended, run=replace(ended.run, cause=_with_limit(task, ended.run, seen)))


def _not_tested(task: Task, seen: LaunchObservations) -> str:
    """Why nothing is known of the nodes; empty where the test began and was seen to its end."""
    if seen.stop == BROKEN_OFF:
        return ""
    if seen.unknown:
        return f"not known: cannot {seen.unknown}"
    if seen.stop or seen.never:
        return seen.never
    return _only_launcher(task, seen) or _refused(task, seen)


def _only_launcher(task: Task, seen: LaunchObservations) -> str:
    """What was done to the launcher where it may be on any node, and the workers are well."""
    if gone(seen.pods, pod_placement.workers(task) or [pod_placement.launcher(task)]):
        return ""
    why = gone(seen.pods, [pod_placement.launcher(task)])
    launcher = seen.pods.get(pod_placement.launcher(task))
    if not why and (launcher is None or pod_state.exit_code(launcher) is None):
        why = "how the launcher ended was not seen"
    return f"not known: {why}" if why else ""


def _refused(task: Task, seen: LaunchObservations) -> str:
    """What our script in the launcher missed."""
    for line in seen.last:
        if line.startswith(MISSING):
            what = line.removeprefix(MISSING)
            if "/" in what:
                return f"the image {task.settings.image} has no folder {what}"
            where = "on its PATH or in the usual folders"
            return f"the image {task.settings.image} has no {what} ({where}): use another, or --folder"
        if line.startswith(SILENT):
            host = line.removeprefix(SILENT)
            node = dict(zip(task.hosts, _nodes(task, seen), strict=True)).get(host, host)
            return f"{node}: the launcher gets no ssh to its pod"
    return ""


def _looks(task: Task, seen: LaunchObservations) -> ranks.Looks:
    """Every node's ranks as they stood at the limit; nothing where the launcher did not tell."""
    if not seen.own.looked:
        return {}
    name = plan.program(task.launch.sweep)
    hosts = task.hosts if len(task.hosts) > 1 else ("alone",)
    return {node: seen.own.ranks(host, name) for host, node in zip(hosts, _nodes(task, seen), strict=True)}


def _nodes(task: Task, seen: LaunchObservations) -> tuple[str, ...]:
    return pod_placement.in_order_of_workers(task, dict(seen.pods))


def _hung(task: Task, ended: LaunchResult, runs: Sequence[Run], seen: LaunchObservations) -> LaunchResult:
    """Pods that were ended from outside are the cause; else who waited for whom, where the launcher could tell."""
    lost = gone(seen.pods, [*pod_placement.workers(task), pod_placement.launcher(task)])
    if seen.own.looked and not lost:
        return ended
    when = f"after {seen.done_size}" if seen.done_size else "before the first size"
    whole = bool(runs) and runs[-1].outcome is Outcome.COMPLETE
    unseen = "no pod was lost, and who waits for whom could not be looked at"
    why = lost or (f"every size was measured, and the test did not end; {unseen}" if whole else unseen)
    cause = f"no end within {task.launch.sweep.limit_s:g} s, {when}: {why}"
    names = pod_placement.workers(task) or [pod_placement.launcher(task)]
    waiting = {name: ranks.GONE if pod_state.why_gone(seen.pods.get(name)) else ranks.UNKNOWN for name in names}
    return replace(ended, run=replace(ended.run, outcome=Outcome.HUNG, cause=cause), waiting=waiting)


def _with_limit(task: Task, run: Run, seen: LaunchObservations) -> str | None:
    """The cause, and what may be behind it where RDMA was asked for and may lock too little memory."""
    names = dict(zip(task.hosts, _nodes(task, seen), strict=True))
    little = seen.own.too_little(names) if task.settings.fabric else ""
    return "; ".join(text for text in (run.cause, LOCKED.format(little) if little else "") if text) or None


def gone(pods: Mapping[str, Object], among: Sequence[str]) -> str:
    """What ended pods from outside, in this order: a worker's end is the cause where the launcher's is the result."""
    whys = {place: pod_state.why_gone(pods.get(place)) for place in among}
    return "; ".join(f"{place}: {why}" for place, why in whys.items() if why)
