"""Result of a launch on Kubernetes, from the test's output, the end of its pods, and our own actions."""

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
    "too little memory may be locked for RDMA on {}: a container's capabilities do not apply to ordinary users; raise "
    "LimitMEMLOCK of the container runtime on the node, or run as root with --user 0"
)


@dataclass(frozen=True)
class LaunchObservations:
    """Observations of a launch at its end.

    `stop`: why gpuctl ended it, "" if it ended by itself. `never`: why it did not begin. `unknown`: why its end is not
    known. `pods`: last state of the pods before their removal, by place. `last`: last lines other than rows. `report`:
    output of our own scripts.
    """

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
    """Result of the launch; a pod that was ended from outside takes precedence over the test's own output."""
    if cause := _not_tested(task, observed):
        return LaunchResult(
            task.launch, Run(Outcome.EMPTY, cause, None, (), None, None), observed.seconds, observed.lost
        )
    first = observed.pods.get(pod_placement.launcher(task))
    code = pod_state.exit_code(first) if first else None
    # A test that ended while its ranks were being checked did end.
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
    """Reason why nothing is known about the nodes; empty if the test began and its end was observed."""
    if observed.stop == BROKEN_OFF:
        return ""
    if observed.unknown:
        return f"not known: cannot {observed.unknown}"
    if observed.stop or observed.never:
        return observed.never
    return _only_launcher(task, observed) or _refused(task, observed)


def _only_launcher(task: Task, observed: LaunchObservations) -> str:
    """Reason why the launcher is lost, if the workers are well and the launcher may run on any node."""
    if gone(observed.pods, pod_placement.workers(task) or [pod_placement.launcher(task)]):
        return ""
    why = gone(observed.pods, [pod_placement.launcher(task)])
    launcher = observed.pods.get(pod_placement.launcher(task))
    if not why and (launcher is None or pod_state.exit_code(launcher) is None):
        why = "the end of the launcher was not observed"
    return f"not known: {why}" if why else ""


def _refused(task: Task, observed: LaunchObservations) -> str:
    """Problem that our script in the launcher reported: a missing program or folder, or a worker without ssh."""
    for line in observed.last:
        if line.startswith(MISSING):
            program = line.removeprefix(MISSING)
            if "/" in program:
                return f"the image {task.settings.image} has no folder {program}"
            where = "on its PATH or in the usual folders"
            return f"the image {task.settings.image} has no {program} ({where}): use another, or --search-path"
        if line.startswith(SILENT):
            host = line.removeprefix(SILENT)
            node = dict(zip(task.hosts, _nodes(task, observed), strict=True)).get(host, host)
            return f"{node}: the launcher cannot log in to its pod by ssh"
    return ""


def _looks(task: Task, observed: LaunchObservations) -> ranks.Looks:
    """Ranks of every node at the limit; empty if the launcher did not report them."""
    if not observed.report.looked:
        return {}
    name = plan.program(task.launch.sweep)
    hosts = task.hosts if len(task.hosts) > 1 else ("alone",)
    return {node: observed.report.ranks(host, name) for host, node in zip(hosts, _nodes(task, observed), strict=True)}


def _nodes(task: Task, observed: LaunchObservations) -> tuple[str, ...]:
    return pod_placement.in_order_of_workers(task, dict(observed.pods))


def _hung(task: Task, result: LaunchResult, runs: Sequence[Run], observed: LaunchObservations) -> LaunchResult:
    """Result of a hang: caused by pods ended from outside, else by the ranks that the launcher reported."""
    lost = gone(observed.pods, [*pod_placement.workers(task), pod_placement.launcher(task)])
    if observed.report.looked and not lost:
        return result
    when = f"after {observed.done_size}" if observed.done_size else "before the first size"
    whole = bool(runs) and runs[-1].outcome is Outcome.COMPLETE
    unseen = "no pod was lost, and the state of the ranks could not be read"
    why = lost or (f"every size was measured, and the test did not end; {unseen}" if whole else unseen)
    cause = f"no end within {task.launch.sweep.limit_s:g} s, {when}: {why}"
    names = pod_placement.workers(task) or [pod_placement.launcher(task)]
    waiting = {name: ranks.GONE if pod_state.why_gone(observed.pods.get(name)) else ranks.UNKNOWN for name in names}
    return replace(result, run=replace(result.run, outcome=Outcome.HUNG, cause=cause), waiting=waiting)


def _with_limit(task: Task, run: Run, observed: LaunchObservations) -> str | None:
    """Cause of a failure, with a note if the run uses RDMA and a node lets it lock too little memory."""
    names = dict(zip(task.hosts, _nodes(task, observed), strict=True))
    little = observed.report.too_little(names) if task.settings.fabric else ""
    return "; ".join(text for text in (run.cause, LOCKED.format(little) if little else "") if text) or None


def gone(pods: Mapping[str, Object], among: Sequence[str]) -> str:
    """Describe pods that were ended from outside, in this order: workers first, since the launcher ends with them."""
    whys = {place: pod_state.why_gone(pods.get(place)) for place in among}
    return "; ".join(f"{place}: {why}" for place, why in whys.items() if why)
