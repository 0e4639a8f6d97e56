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
    `last`: the last lines that are no rows. `report`: what our own scripts printed."""

    stop: str
    never: str
    unknown: str
    pods: Mapping[str, Object]
    last: Sequence[str]
    done_size: str
    lost: tuple[str, ...]
    seconds: float
    report: WorkerReport = field(default_factory=WorkerReport)


def settled(task: Task, runs: Sequence[Run], observed: LaunchObservations) -> LaunchResult:
    """One result; what was done to its pods from outside goes before what the test said of it."""
    if cause := _not_tested(task, observed):
        return LaunchResult(
            task.launch, Run(Outcome.EMPTY, cause, None, (), None, None), observed.seconds, observed.lost
        )
    first = observed.pods.get(pod_placement.launcher(task))
    code = pod_state.exit_code(first) if first else None
    # A test that ended while it was looked who waits for whom did end.
    stop = "" if observed.stop == LIMIT and code is not None else observed.stop
    order = replace(task.launch, nodes=pod_placement.in_order_of_workers(task, dict(observed.pods)))
    answer = None if code is None else {"code": code}
    end = outcome.ProgramEnd(
        stop, answer, None, observed.last, _looks(task, observed), observed.lost, observed.done_size, task.hosts
    )
    result = replace(outcome.settle(order, runs, end, observed.seconds), launch=task.launch)
    if stop == LIMIT:
        return _hung(task, result, runs, observed)
    if stop or result.run.outcome in (Outcome.COMPLETE, Outcome.CORRUPT):
        return result
    reason = gone(observed.pods, [*pod_placement.workers(task), pod_placement.launcher(task)])
    if reason:
        return replace(result, run=replace(result.run, outcome=Outcome.KILLED, cause=reason))
    return replace(result, run=replace(result.run, cause=_with_limit(task, result.run, observed)))


def _not_tested(task: Task, observed: LaunchObservations) -> str:
    """Why nothing is known of the nodes; empty where the test began and was seen to its end."""
    if observed.stop == BROKEN_OFF:
        return ""
    if observed.unknown:
        return f"not known: cannot {observed.unknown}"
    if observed.stop or observed.never:
        return observed.never
    return _only_launcher(task, observed) or _refused(task, observed)


def _only_launcher(task: Task, observed: LaunchObservations) -> str:
    """What was done to the launcher where it may be on any node, and the workers are well."""
    if gone(observed.pods, pod_placement.workers(task) or [pod_placement.launcher(task)]):
        return ""
    why = gone(observed.pods, [pod_placement.launcher(task)])
    launcher = observed.pods.get(pod_placement.launcher(task))
    if not why and (launcher is None or pod_state.exit_code(launcher) is None):
        why = "how the launcher ended was not seen"
    return f"not known: {why}" if why else ""


def _refused(task: Task, observed: LaunchObservations) -> str:
    """What our script in the launcher missed."""
    for line in observed.last:
        if line.startswith(MISSING):
            what = line.removeprefix(MISSING)
            if "/" in what:
                return f"the image {task.settings.image} has no folder {what}"
            where = "on its PATH or in the usual folders"
            return f"the image {task.settings.image} has no {what} ({where}): use another, or --search-path"
        if line.startswith(SILENT):
            host = line.removeprefix(SILENT)
            node = dict(zip(task.hosts, _nodes(task, observed), strict=True)).get(host, host)
            return f"{node}: the launcher gets no ssh to its pod"
    return ""


def _looks(task: Task, observed: LaunchObservations) -> ranks.Looks:
    """Every node's ranks as they stood at the limit; nothing where the launcher did not tell."""
    if not observed.report.looked:
        return {}
    name = plan.program(task.launch.sweep)
    hosts = task.hosts if len(task.hosts) > 1 else ("alone",)
    return {node: observed.report.ranks(host, name) for host, node in zip(hosts, _nodes(task, observed), strict=True)}


def _nodes(task: Task, observed: LaunchObservations) -> tuple[str, ...]:
    return pod_placement.in_order_of_workers(task, dict(observed.pods))


def _hung(task: Task, result: LaunchResult, runs: Sequence[Run], observed: LaunchObservations) -> LaunchResult:
    """Pods that were ended from outside are the cause; else who waited for whom, where the launcher could tell."""
    lost = gone(observed.pods, [*pod_placement.workers(task), pod_placement.launcher(task)])
    if observed.report.looked and not lost:
        return result
    when = f"after {observed.done_size}" if observed.done_size else "before the first size"
    whole = bool(runs) and runs[-1].outcome is Outcome.COMPLETE
    unseen = "no pod was lost, and who waits for whom could not be looked at"
    why = lost or (f"every size was measured, and the test did not end; {unseen}" if whole else unseen)
    cause = f"no end within {task.launch.sweep.limit_s:g} s, {when}: {why}"
    names = pod_placement.workers(task) or [pod_placement.launcher(task)]
    waiting = {name: ranks.GONE if pod_state.why_gone(observed.pods.get(name)) else ranks.UNKNOWN for name in names}
    return replace(result, run=replace(result.run, outcome=Outcome.HUNG, cause=cause), waiting=waiting)


def _with_limit(task: Task, run: Run, observed: LaunchObservations) -> str | None:
    """The cause, and what may be behind it where RDMA was asked for and may lock too little memory."""
    names = dict(zip(task.hosts, _nodes(task, observed), strict=True))
    little = observed.report.too_little(names) if task.settings.fabric else ""
    return "; ".join(text for text in (run.cause, LOCKED.format(little) if little else "") if text) or None


def gone(pods: Mapping[str, Object], among: Sequence[str]) -> str:
    """What ended pods from outside, in this order: a worker's end is the cause where the launcher's is the result."""
    whys = {place: pod_state.why_gone(pods.get(place)) for place in among}
    return "; ".join(f"{place}: {why}" for place, why in whys.items() if why)
