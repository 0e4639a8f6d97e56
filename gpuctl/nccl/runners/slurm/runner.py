"""Runner that starts launches as steps of one Slurm job; see gpuctl/nccl/runner.py."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from gpuctl.core.errors import GpuctlError
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run
from gpuctl.nccl.runner import ProgressListener
from gpuctl.nccl.runners.mpirun import refuse_shared
from gpuctl.nccl.runners.slurm import allocation
from gpuctl.nccl.runners.slurm.allocation import Granted, Waiting
from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.nccl.runners.slurm.step import Running


class SlurmRunner:
    """A Runner on nodes of a Slurm cluster, in one job for all launches; the first launch waits for the job.

    `close` releases the job, at the latest when gpuctl ends. Inside a job (SLURM_JOB_ID) that job is used, and kept.
    `notify` receives messages about nodes that Slurm did not regain. `GpuctlError` if Slurm does not grant the nodes in
    time; the request has then left the queue.
    """

    def __init__(
        self, nodes: Sequence[str], settings: Settings, notify: Callable[[str], None] = lambda _: None
    ) -> None:
        self.nodes, self.settings, self._notify = tuple(nodes), settings, notify
        self._job: Granted | None = None

    def run(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> list[LaunchResult]:
        """See Runner.run."""
        refuse_shared(launches)
        if not launches:
            return []
        job = self._granted(launches, listener, broken_off)
        why = "broken off" if job is None else job.over()
        if job is None or why:
            return [_never(launch, why) for launch in launches]
        running = [Running(job, launch, self.settings, listener) for launch in launches]
        with ThreadPoolExecutor(len(running)) as pool:
            jobs = [pool.submit(one.to_its_end) for one in running]
            try:
                while not all(one.done() for one in jobs):
                    time.sleep(0.05)
                    for one in running:
                        one.watch(broken_off())
            except BaseException:  # Ctrl-C: the pool waits until each launch has ended
                for one in running:
                    one.watch(broken_off=True)
                raise
            return [one.result() for one in jobs]

    def _granted(
        self, launches: Sequence[Launch], listener: ProgressListener, broken_off: Callable[[], bool]
    ) -> Granted | None:
        if self._job is None and (number := allocation.around()):
            self._job = Granted(number, None)
        if self._job is None:
            gpus = max(launch.sweep.gpus_per_node for launch in launches)
            waiting = Waiting(self.settings, self.nodes, gpus)
            granted = waiting.until_granted(lambda message: listener(launches[0], message), broken_off)
            if granted is None:
                return None
            self._job = Granted(granted.number, granted)
            atexit.register(self.close)
        return self._job

    def close(self) -> None:
        """Release the nodes; further calls do nothing."""
        job, self._job = self._job, None
        if job is None:
            return
        atexit.unregister(self.close)
        try:
            left = job.give_back()
        except GpuctlError as error:
            self._notify(f"the state of job {job.number} is unknown: {error.wrong}")
            return
        if left:
            self._notify(f"job {job.number} is cancelled, but Slurm has not regained {', '.join(left)}")

    def __enter__(self) -> SlurmRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _never(launch: Launch, why: str) -> LaunchResult:
    return LaunchResult(launch, Run(Outcome.KILLED, why, None, (), None, None), 0.0)
