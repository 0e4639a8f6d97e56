"""Runs launches as steps of one Slurm job: see gpuctl/nccl/runner.py for the promises."""

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
    """A Runner on these nodes of a Slurm cluster, in one job for all launches, which the first of them waits for.

    It is given back by `close`, at the latest when gpuctl ends, however it ends. Inside of a job (SLURM_JOB_ID) that
    one is used, and stays. `say` hears of nodes that Slurm did not get back. `GpuctlError` where Slurm does not give
    us the nodes in time; then nothing of ours waits there any more.
    """

    def __init__(self, nodes: Sequence[str], settings: Settings, say: Callable[[str], None] = lambda _: None) -> None:
        self.nodes, self.settings, self._say = tuple(nodes), settings, say
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
            except BaseException:  # Ctrl-C: the pool waits until each has ended its own
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
            granted = waiting.until_granted(lambda words: listener(launches[0], words), broken_off)
            if granted is None:
                return None
            self._job = Granted(granted.number, granted)
            atexit.register(self.close)
        return self._job

    def close(self) -> None:
        """Give the nodes back; once is enough."""
        job, self._job = self._job, None
        if job is None:
            return
        atexit.unregister(self.close)
        try:
            left = job.give_back()
        except GpuctlError as error:
            self._say(f"whether job {job.number} is over is not known: {error.wrong}")
            return
        if left:
            self._say(f"job {job.number} is cancelled, and Slurm has not got back {', '.join(left)}")

    def __enter__(self) -> SlurmRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _never(launch: Launch, why: str) -> LaunchResult:
    return LaunchResult(launch, Run(Outcome.KILLED, why, None, (), None, None), 0.0)
