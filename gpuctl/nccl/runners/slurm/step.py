"""One launch as a step of a Slurm job, from its start until its processes are gone."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from gpuctl.core.errors import GpuctlError
from gpuctl.domain import slurm_states
from gpuctl.domain.ranks import Process
from gpuctl.edges import slurm
from gpuctl.edges.ssh import Failure
from gpuctl.engine import launch_answers
from gpuctl.engine import mpirun_command as carried_command
from gpuctl.nccl import plan
from gpuctl.nccl.launch import outcome as settle
from gpuctl.nccl.launch.handle import WatchedLaunch
from gpuctl.nccl.model import Launch, LaunchResult
from gpuctl.nccl.parsing import parse
from gpuctl.nccl.runner import ProgressListener
from gpuctl.nccl.runners.slurm import command, outcome
from gpuctl.nccl.runners.slurm.allocation import Granted
from gpuctl.nccl.runners.slurm.command import Settings
from gpuctl.remote import payload

PROBE_LIMIT_S = 20.0
GONE_S = 30.0
LEAVE_S = 10.0  # for srun to end after its step was cancelled
LOOKS_AT_ONCE = 32
_UNKILLABLE = "kill task failed"  # Slurm's reason for draining a node whose processes it could not end


class Running(WatchedLaunch):
    """One launch as a step of the job, from its start until Slurm confirms its end."""

    def __init__(self, job: Granted, launch: Launch, settings: Settings, listener: ProgressListener) -> None:
        super().__init__(launch, secrets.token_hex(8), settings.save_output, listener)
        self.job, self.settings = job, settings
        self.name = f"gpuctl-{self.token}"
        variables = command.environment(settings, launch, self.token, os.environ)
        self.stream = slurm.step(command.srun(settings, launch, job.number, self.name), variables)
        self.report("started")

    def end(self) -> None:
        """See WatchedLaunch."""
        try:
            self._cancel()
        finally:
            self.stream.end()
            self.stream.wait(LEAVE_S)

    def to_its_end(self) -> LaunchResult:
        """Read its output to the end, then clean up, also after an error of our own."""
        try:
            return self._read()
        except BaseException:
            self._cancel()
            self.stream.end()
            raise

    def _read(self) -> LaunchResult:
        runs = list(parse.runs(self._lines()))
        self.is_read()
        code, errors = self.stream.wait(LEAVE_S)
        self.printed.add(errors.splitlines())
        seconds = time.monotonic() - self.begun
        clean = not self.stop and code == 0
        observations = outcome.StepObservations(
            stop=self.stop,
            code=code,
            last=self.printed.last,
            looks=self.looks,
            lost=() if clean else self._lost(),
            done_size=self.printed.done_size,
            seconds=seconds,
            job_over="" if clean else self.job.over(),
            mpi=self.settings.mpi,
        )
        result = outcome.settled(self.launch, runs, observations)
        self.report(settle.summary_line(result))
        return result

    def _lines(self) -> Iterator[str]:
        """Yield the output for the parser."""
        with self.printed:
            for line in self.stream.lines():
                self.printed.take(line)
                yield line

    def _cancel(self) -> bool:
        """Cancel the step if Slurm still has it; returns True if it may still exist."""
        try:
            step = self.job.steps().get(self.name)
        except GpuctlError:
            return True  # `_lost` queries again, and reports that the state is unknown
        if step:
            slurm.cancel(step)
        return step is not None

    def _lost(self) -> tuple[str, ...]:
        """End the rest of the step; returns the nodes where Slurm does not confirm the end."""
        end = time.monotonic() + GONE_S
        try:
            left = self._cancel()
            while left and time.monotonic() < end:
                left = self.name in self.job.steps()
            states = {node.name: node for node in self.job.nodes()}
        except GpuctlError as error:
            self.report(f"the state of its step is unknown: {error.wrong}")
            return self.launch.nodes
        silent = tuple(node for node in self.launch.nodes if _is_silent(states.get(node)))
        return silent or (self.launch.nodes if left else ())

    def observe_ranks(self) -> dict[str, list[Process] | None]:
        """Current state of every node's ranks."""
        nodes = self.launch.nodes
        with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(nodes))) as pool:
            return dict(zip(nodes, pool.map(self._look_at, nodes), strict=True))

    def _look_at(self, node: str) -> list[Process] | None:
        mark = f"gpuctl-{self.token} "
        request = {"mark": mark, "variable": f"{carried_command.VARIABLE}={self.token}", "end": False}
        argv = command.inspect_node(self.job.number, node, PROBE_LIMIT_S)
        done = slurm.try_to(*argv, stdin=payload.program("process_tree", request), limit=PROBE_LIMIT_S)
        answer, name = payload.answer(done.out, mark, launch_answers.Look), plan.name_in_kernel(self.launch.sweep)
        if isinstance(answer, Failure):
            self.report(f"{node}: which of its ranks wait is unknown: {answer.wrong}")
            return None
        return [Process(**one) for one in answer["processes"] if one["name"] == name]


def _is_silent(node: slurm.Node | None) -> bool:
    """True if a node does not respond to Slurm, or if Slurm could not end its processes."""
    if node is None:
        return True
    return slurm_states.is_silent(node.state) or _UNKILLABLE in node.reason.lower()
