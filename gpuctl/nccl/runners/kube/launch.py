"""One launch on Kubernetes, from its first object until nothing of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import NotFound
from gpuctl.domain.pod_status import is_ready
from gpuctl.edges import ssh_keys
from gpuctl.edges.kube import watch
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.nccl.launch import outcome as settle
from gpuctl.nccl.launch.output import LaunchOutput
from gpuctl.nccl.model import LaunchResult, Run
from gpuctl.nccl.parsing import parse
from gpuctl.nccl.runner import ProgressListener
from gpuctl.nccl.runners.kube import cleanup, hang_probe, mpijob, objects, outcome, pod_placement, pod_state
from gpuctl.nccl.runners.kube.model import BROKEN_OFF, GRACE_S, LIMIT, Task
from gpuctl.nccl.runners.kube.pods import Pods
from gpuctl.nccl.runners.kube.worker_report import WorkerReport

# Seconds after the limit for the launcher to ask each worker what its ranks do.
LOOK_S = hang_probe.APART_S + hang_probe.ANSWER_S + 3
# Seconds for the reader of an ended container's log to end by itself; after that it has lost the log.
FOLLOW_S = 5.0


class _NeverBegan(Exception):
    """A pod did not start; the text names the pod and the reason."""


def made_first(task: Task) -> list[Object]:
    """Objects to create before the launcher, in this order; none for a single node."""
    if len(task.launch.nodes) == 1:
        return []
    keys = objects.secret(task, ssh_keys.pair(), ssh_keys.pair())
    if task.by_operator:
        return [keys, mpijob.job(task)]
    return [objects.service(task), keys, *objects.workers(task)]


class Running:
    """A launch in progress: `to_its_end` works in one thread while another calls `look` repeatedly."""

    def __init__(
        self, cluster: Cluster, pods: Pods, task: Task, listener: ProgressListener, save_output: Path | None
    ) -> None:
        self.cluster, self.pods, self.task = cluster, pods, task
        self._listener = listener
        self.reading = Stop()
        self.stop = ""
        self.made = self.begun = time.monotonic()
        # The removal of its objects takes time, too, and is not part of the test.
        self.has_begun = self.is_over = False
        self.printed = LaunchOutput(task.launch, task.run, save_output, self.report)
        self.worker_report = WorkerReport()
        self.checked = self.made
        self.over_since: float | None = None

    def report(self, message: str) -> None:
        self._listener(self.task.launch, message)

    def enforce_limit(self, broken_off: bool) -> None:
        """End the launch if its time is over or the user interrupts."""
        if self.is_over:
            return
        if broken_off:
            self.end(BROKEN_OFF)
            return
        late = time.monotonic() - self.begun - self.task.launch.sweep.limit_s
        if self.has_begun and late > 0:
            if not self.stop:
                self.report("not finished within its limit: checking which ranks wait for which, then ending it")
            self.stop = self.stop or LIMIT
            if self.worker_report.looked or late > LOOK_S:
                self.end(LIMIT)
        self._free_the_reader()

    def _free_the_reader(self) -> None:
        """Restart a reader that still follows the log of an ended container: a log rotation can cut it off."""
        now = time.monotonic()
        if now - self.checked < 1:
            return
        self.checked = now
        if not self.has_begun or not self._has_ended(self.pods.known(self.task)):
            self.over_since = None
        elif self.over_since is None:
            self.over_since = now
        elif now - self.over_since > FOLLOW_S:
            self.over_since = now
            self.reading.again()

    def _has_ended(self, pods: Mapping[str, Object]) -> bool:
        launcher = pods.get(pod_placement.launcher(self.task))
        return launcher is None or pod_state.is_finished(launcher)

    def end(self, why: str) -> None:
        self.stop = self.stop or why
        self.reading.set()

    def to_its_end(self) -> LaunchResult:
        """Create the objects, wait, read the log, remove everything; errors are raised after the removal."""
        runs: list[Run] = []
        never = unknown = ""
        try:
            self._begin()
            runs = list(parse.runs(self._lines()))
            self._wait_for_the_end()
        except _NeverBegan as error:
            never = str(error)
        except Unreachable as error:
            unknown = f"{error.doing}: {error.wrong}"
        finally:
            self.is_over = True
            seconds = time.monotonic() - (self.begun if self.has_begun else self.made)
            pods = self.pods.known(self.task)
            removed = cleanup.remove(self.cluster, self.task)
            if removed.left:
                self.report(removed.left)
        observations = outcome.LaunchObservations(
            self.stop,
            never,
            unknown,
            pods,
            self.printed.last,
            self.printed.done_size,
            removed.lost,
            seconds,
            self.worker_report,
        )
        result = replace(outcome.settled(self.task, runs, observations), left=removed.left)
        self.report(settle.summary_line(result))
        return result

    def _begin(self) -> None:
        for object_ in made_first(self.task):
            if self.stop:
                return
            self.cluster.apply(object_)
        workers = pod_placement.workers(self.task)
        if workers:
            self.report("its MPIJob is made" if self.task.by_operator else "its pods are made")
            self._wait(workers, is_ready)
        if self.stop:
            return
        if not self.task.by_operator:
            pods = self.pods.of_launch(self.task)
            self.cluster.apply(objects.launcher(self.task, [pod_state.address(pods[name]) for name in workers]))
        self._wait([pod_placement.launcher(self.task)], pod_state.has_begun)
        if not self.stop:
            self.begun, self.has_begun = time.monotonic(), True
            self.report("started")

    def _wait(self, names: list[str], done: Callable[[Object], bool]) -> None:
        """Wait until `done` holds for the pods of all these places, or the launch is to end."""
        begun, count, reported = time.monotonic(), 0, ""
        known: set[str] = set()
        while not self.stop:
            pods = self.pods.of_launch(self.task)
            known.update(pods)
            missing = [name for name in names if not (name in pods and done(pods[name]))]
            if not missing:
                return
            self._refuse_ended([name for name in missing if name in known], pods)
            reason = self._why_waiting(pods, done) or self._why_nothing(pods, time.monotonic() - begun)
            if time.monotonic() - begun > self.task.settings.start_s:
                late = f"its pod has not started within {self.task.settings.start_s:g} s"
                raise _NeverBegan(reason or f"{missing[0]}: {late}")
            if reason and reason != reported:
                reported = reason
                self.report(f"waiting: {reason}")
            count = self.pods.wait(count, 0.5)

    def _refuse_ended(self, names: list[str], pods: Mapping[str, Object]) -> None:
        """Raise for the first pod that cannot start any more."""
        for name in names:
            pod = pods.get(name)
            why = pod_state.why_gone(pod)
            if pod and not why and pod_state.is_finished(pod):
                output = "; ".join(self._tail(pod))
                detail = f" ({output})" if output else ""
                why = f"its container ended with exit status {pod_state.exit_code(pod)}{detail}"
            if pod and pod_state.is_hopeless(pod):
                why = pod_state.why_waiting(pod)
            if why:
                raise _NeverBegan(f"{name}: {why}")

    def _why_waiting(self, pods: Mapping[str, Object], done: Callable[[Object], bool]) -> str:
        whys = {place: pod_state.why_waiting(pod) for place, pod in pods.items() if not done(pod)}
        return "; ".join(f"{place}: {why}" for place, why in whys.items() if why)

    def _why_nothing(self, pods: Mapping[str, Object], seconds: float) -> str:
        """Reason why an MPIJob has no pods, "" if it is too early; raises if no operator has noticed the job."""
        if pods or not self.task.by_operator or seconds < min(mpijob.NOTICED_S, self.task.settings.start_s):
            return ""
        reason = mpijob.why_nothing(self.cluster, self.task)
        if mpijob.is_unnoticed(self.cluster, self.task):
            raise _NeverBegan(reason)
        return reason

    def _tail(self, pod: Object) -> list[str]:
        """Last lines of a worker's log; none if the log cannot be read, because the pod is being removed."""
        try:
            return list(watch.logs(self.cluster, pod["metadata"]["name"], lambda: True, self.reading))[-3:]
        except GpuctlError:
            return []

    def _lines(self) -> Iterator[str]:
        """Yield the launcher's output for the parser, without the lines of our own scripts."""
        if not self.has_begun:
            return
        with self.printed, suppress(NotFound):  # its pod was deleted; `why_gone` reports it
            for line in self._read():
                self.printed.write(line)
                if not self.worker_report.take(line):
                    self.printed.note(line)
                    yield line + "\n"
        self._warn()

    def _read(self) -> Iterator[str]:
        pod = self.pods.of_launch(self.task).get(pod_placement.launcher(self.task))
        if pod is None:  # it was deleted just now; `why_gone` reports it
            return
        log = watch.Log(self.cluster, pod["metadata"]["name"])
        yield from log.lines(self._over, self.reading)
        if self.stop == LIMIT:  # it may have printed more, or even have ended, while the log was not read
            yield from log.rest(Stop())

    def _warn(self) -> None:
        """Warn about low memory limits that our scripts report; pods that run as root report none."""
        if not (self.task.settings.fabric and self.worker_report.memlock):
            return
        nodes = pod_placement.in_order_of_workers(self.task, self.pods.known(self.task))
        if little := self.worker_report.too_little(dict(zip(self.task.hosts, nodes, strict=True))):
            self.report(f"warning: {outcome.LOCKED.format(little)}")

    def _over(self) -> bool:
        return self._has_ended(self.pods.of_launch(self.task))

    def _wait_for_the_end(self) -> None:
        """Wait for the pod's status: the log may end a moment before the cluster knows how the container ended."""
        end, count = time.monotonic() + GRACE_S, 0
        while not self.stop and not self._over() and time.monotonic() < end:
            count = self.pods.wait(count, 0.5)
