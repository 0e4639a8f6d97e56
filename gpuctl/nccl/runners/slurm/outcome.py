"""Result of a step, from the output of srun and Slurm: no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuctl.domain import ranks
from gpuctl.nccl import plan
from gpuctl.nccl.launch import outcome as settle
from gpuctl.nccl.model import Launch, LaunchResult, Outcome, Run

_CANCELLED = re.compile(r"\*\*\* (JOB|STEP) (\S+) ON (\S+) CANCELLED AT \S+(?: DUE TO (.+?))?\s*\*\*\*")
_NO_PROGRAM = re.compile(r"failed to run command \W?(\S+?)\W?: No such file")
_EXITED = re.compile(r"srun: error: (\S+): tasks? \S+: Exited with exit code 127")
_NODE_FAILED = re.compile(r"srun: error: Node failure on (\S+)")
# Most specific first: pattern in the output of Slurm or MPI, and its meaning.
_KNOWN = (
    (r"srun: error: (\S+): tasks? (\S+): Out Of Memory", Outcome.KILLED, "{}: out of memory (task {})"),
    (r"not built with SLURM's PMI support", Outcome.FAILED, "MPI on the nodes cannot be started by --mpi={mpi}"),
    (r"srun: error: Unable to create step for job \d+: (.+)", Outcome.FAILED, "Slurm makes no step for it: {}"),
    (r"srun: error: (Couldn't find the specified plugin.*)", Outcome.FAILED, "srun: {}"),
    (r"srun: error: Task launch for \S+ failed on node (\S+): (.+)", Outcome.FAILED, "{}: Slurm cannot start it ({})"),
)
# Only if the test printed no reason. srun cancels the step after a crash, so a cancellation is no reason then.
_CRASHED = r"srun: error: (\S+): tasks? (\S+): (Segmentation fault|Aborted|Bus error)"
EARLY = " before the test printed anything, as MPI under Slurm occasionally does on any node (open-mpi/ompi#12495)"
_LAST = (
    (_CRASHED, "{0}: {2} (task {1})"),
    (r"srun: error: (\S+): tasks? (\S+): (Killed)", "{0}: {2} (task {1})"),
    (r"srun: error: (\S+): tasks? (\S+): Exited with exit code (\d+)", "{0}: exit status {2} (task {1})"),
    (r"srun: error: (.+)", "srun: {}"),
)


@dataclass(frozen=True)
class StepObservations:
    """Observations of a step at its end.

    `stop`: why gpuctl ended it ("limit", "broken off"), "" if it ended by itself. `job_over`: how Slurm ended the whole
    job, "" if it did not. `last`: last lines other than rows, followed by those of srun.
    """

    stop: str
    code: int
    last: Sequence[str]
    looks: ranks.Looks
    lost: tuple[str, ...]
    done_size: str
    seconds: float
    job_over: str = ""
    mpi: str = ""


def settled(launch: Launch, runs: Sequence[Run], observed: StepObservations) -> LaunchResult:
    """Result of a launch; actions of Slurm take precedence over the test's own output."""
    end = settle.ProgramEnd(
        stop=observed.stop,
        answer={"code": observed.code},
        ssh=None,
        last=observed.last,
        looks=observed.looks,
        lost=observed.lost,
        done_size=observed.done_size,
        hosts=launch.nodes,
    )
    result = settle.settle(launch, runs, end, observed.seconds)
    if observed.stop or observed.code == 0 or result.run.outcome is Outcome.CORRUPT:
        return result
    cause = outside(launch, observed) or _unsaid(runs[-1] if runs else None, observed)
    return replace(result, run=replace(result.run, outcome=cause[0], cause=cause[1])) if cause else result


def outside(launch: Launch, observed: StepObservations) -> tuple[Outcome, str] | None:
    """Outcome and cause if Slurm ended the step or could not start it; None otherwise."""
    if reason := _failed_node(observed.last) or observed.job_over or _ended_by_slurm(observed.last):
        return Outcome.KILLED, reason
    if any(_NO_PROGRAM.search(line) for line in observed.last):
        return Outcome.FAILED, _missing(launch, observed)
    for pattern, outcome, template in _KNOWN:
        for line in observed.last:
            if match := re.search(pattern, line):
                return outcome, template.format(*match.groups(), mpi=observed.mpi)
    return None


def _failed_node(last: Sequence[str]) -> str:
    """Describe the node that Slurm considers failed; this is the cause of steps and jobs that it ends afterwards."""
    match = next(filter(None, map(_NODE_FAILED.search, last)), None)
    return f"{match[1]}: Slurm considers it failed" if match else ""


def _ended_by_slurm(last: Sequence[str]) -> str:
    """Reason why Slurm cancelled it; "" without one, as when a user cancels a step."""
    for match in filter(None, map(_CANCELLED.search, last)):
        whole, number, _, why = match.groups()
        if why or whole == "JOB":
            return f"Slurm ended {whole.lower()} {number}: {(why or 'cancelled').lower()}"
    return ""


def _missing(launch: Launch, observed: StepObservations) -> str:
    where = sorted(match[1] for line in observed.last if (match := _EXITED.search(line))) or [launch.nodes[0]]
    build = "build it in a folder that all nodes share (make MPI=1 in github.com/NVIDIA/nccl-tests)"
    return f"{', '.join(where)}: {plan.program(launch.sweep)} is not installed: {build}, or use --search-path"


def _unsaid(run: Run | None, observed: StepObservations) -> tuple[Outcome, str] | None:
    """Outcome and cause from srun's messages, if the test printed no reason."""
    if run and run.outcome in (Outcome.FAILED, Outcome.KILLED, Outcome.HUNG):
        return None
    cut = [line for line in observed.last if _CANCELLED.search(line)]
    for pattern, template in _LAST:
        for line in observed.last:
            if match := re.search(pattern, line):
                killed = cut and pattern != _CRASHED
                early = EARLY if pattern == _CRASHED and not (run and (run.ranks or run.rows)) else ""
                return (Outcome.KILLED if killed else Outcome.FAILED), template.format(*match.groups()) + early
    return (Outcome.KILLED, "somebody cancelled its step") if cut else None
