"""Runner on a Kubernetes cluster; it removes every object that it creates. See gpuctl/nccl/runner.py."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from gpuctl.core.run_history import current_user
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.nccl.model import Launch, LaunchResult
from gpuctl.nccl.runner import ProgressListener
from gpuctl.nccl.runners.kube import leftovers, objects
from gpuctl.nccl.runners.kube.launch import Running, made_first
from gpuctl.nccl.runners.kube.model import BROKEN_OFF, Settings, Task
from gpuctl.nccl.runners.kube.pods import Pods
from gpuctl.nccl.runners.mpirun import refuse_shared


class KubeRunner:
    """A Runner in a namespace of a cluster; nodes have the cluster's names. `save_output`: folder for the output.

    `GpuctlError` if the cluster refuses to run anything (forbidden, over quota, denied by a policy) or does not answer
    when a round begins; objects created by then are removed first. A launch that did not begin, or whose cluster
    became unreachable, ends as EMPTY with the cause: nothing is known about its nodes.
    """

    def __init__(self, cluster: Cluster, settings: Settings, save_output: Path | None = None) -> None:
        self.cluster, self.settings, self.save_output = cluster, settings, save_output

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        """See Runner.run. Leftovers of earlier runs of the same user are removed first."""
        refuse_shared(launches)
        leftovers.remove(self.cluster, current_user())
        round_ = secrets.token_hex(4)
        tasks = [Task(round_, number, launch, self.settings, current_user()) for number, launch in enumerate(launches)]
        with Pods(self.cluster, round_) as pods, ThreadPoolExecutor(len(tasks) or 1) as pool:
            running = [Running(self.cluster, pods, task, listener, self.save_output) for task in tasks]
            jobs = [pool.submit(one.to_its_end) for one in running]
            try:
                _until_all_end(running, jobs, broken_off)
            except BaseException:  # Ctrl-C: the pool waits until each launch has removed its objects
                for one in running:
                    one.end(BROKEN_OFF)
                raise
            return [job.result() for job in jobs]

    def validate(self, launches: Sequence[Launch]) -> None:
        """Check every object of these launches by a server-side dry run; raises the first error."""
        for number, launch in enumerate(launches):
            task = Task("validate", number, launch, self.settings, current_user())
            for object_ in [*made_first(task), *([] if task.by_operator else [objects.launcher(task)])]:
                self.cluster.apply(object_, dry_run=True)


def _until_all_end(
    running: Sequence[Running], jobs: Sequence[Future[LaunchResult]], broken_off: Callable[[], bool]
) -> None:
    while not all(job.done() for job in jobs):
        time.sleep(0.05)
        # Permissions and quotas are the same for all launches, so a failure of one ends the others.
        failed = any(job.done() and job.exception() for job in jobs)
        for one in running:
            one.enforce_limit(broken_off() or failed)
