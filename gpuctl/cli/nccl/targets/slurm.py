"""nccl on Slurm: options, and the runner they select."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.nccl import log_files
from gpuctl.cli.nccl.targets import pods
from gpuctl.cli.shared import options
from gpuctl.cli.shared.option_sections import section
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.nccl.runners.slurm.command import Settings
    from gpuctl.nccl.runners.slurm.node_selection import NodeRequest
    from gpuctl.nccl.runners.slurm.runner import SlurmRunner

OTHERS = (*pods.FOR_SSH, "image", *pods.FOR_PODS, "cluster", "environment")
OURS = ("partition", "account", "qos", "reservation", "mpi", "queue_s", "job_minutes")

on_slurm = section("On a Slurm cluster")
slurm_options = options.together(
    on_slurm("--slurm", is_flag=True, help="Run as steps of one Slurm job, by srun; only on idle nodes."),
    on_slurm("--partition", metavar="NAME", default="", help="[default: Slurm's own]"),
    on_slurm("--account", metavar="NAME", default="", help="Whose account the job is charged to."),
    on_slurm("--qos", metavar="NAME", default="", help="Its quality of service."),
    on_slurm("--reservation", metavar="NAME", default="", help="Use the nodes of a reservation."),
    on_slurm("--mpi", type=click.Choice(["pmix", "pmi2"]), help="How srun starts ranks.  [default: the first it has]"),
    on_slurm("--queue-s", type=options.Finite(1), help="Wait no longer in the queue.  [default: 600]"),
    on_slurm("--job-minutes", type=click.IntRange(1), help="The time asked of Slurm for all tests.  [default: 240]"),
)


def chosen(slurm: bool, **params: Any) -> bool:
    """Return True if the run is a Slurm job; raises `InvalidInput` if options of several targets are mixed."""
    mixed = pods.given_options(OTHERS if slurm else OURS, params)
    if mixed and slurm:
        hint = "leave one of them out; --nodes names nodes of Slurm, or says how many"
        raise InvalidInput("run NCCL tests on Slurm", f"{mixed} is for another way to the nodes", hint)
    if mixed:
        raise InvalidInput("run NCCL tests", f"{mixed} is for Slurm", "give --slurm, too")
    return slurm


def runner(
    partition: str, reservation: str, nodes: str = "", gpus: int | None = None, **params: Any
) -> tuple[SlurmRunner, list[str], str, Mapping[str, str]]:
    """Return the runner, its nodes, the cluster's name for the history, and the racks that Slurm knows.

    Nodes left out are reported on standard error with Slurm's reason.
    """
    from gpuctl.edges import slurm
    from gpuctl.nccl.runners.slurm import node_selection
    from gpuctl.nccl.runners.slurm.allocation import around
    from gpuctl.nccl.runners.slurm.runner import SlurmRunner

    slurm.need()
    choice = node_selection.choose(slurm.nodes(), _wanted(around(), partition, reservation, nodes, gpus))
    for name, why in choice.left_out.items():
        _say(f"{name} is left out: {why}")
    settings = _settings(partition=choice.partition, reservation=reservation, **params)
    racks = {node: rack for node, rack in slurm.racks().items() if node in choice.names}
    return SlurmRunner(choice.names, settings, _say), list(choice.names), f"slurm {slurm.cluster()}", racks


def _settings(
    mpi: str | None,
    queue_s: float | None,
    job_minutes: int | None,
    folders: Sequence[str] = (),
    texts: Path | None = None,
    **params: Any,
) -> Settings:
    """Slurm settings; options that were not given keep their defaults."""
    from gpuctl.nccl.runners.slurm.command import Settings

    return Settings(
        **{name: params[name] for name in ("partition", "account", "qos", "reservation")},
        mpi=_mpi(mpi),
        wait_s=queue_s or Settings.wait_s,
        minutes=job_minutes or Settings.minutes,
        folders=tuple(folders),
        texts=log_files.made(texts),
    )


def _say(message: str) -> None:
    click.echo(message, err=True)


def _wanted(inside: str, partition: str, reservation: str, nodes: str, gpus: int | None) -> NodeRequest:
    """Node request from the options; inside a job only the job's nodes are available."""
    from gpuctl.edges import slurm
    from gpuctl.nccl.runners.slurm.node_selection import NodeRequest

    number = int(nodes) if nodes.isdecimal() else None
    names = () if number is not None else tuple(slurm.expand(nodes))
    if number == 0:
        raise InvalidInput("choose Slurm nodes", "--nodes 0 is no node", "say how many, or which")
    if inside:
        return _of_the_job(inside, names, number, gpus)
    reserved = frozenset(slurm.reserved(reservation)) if reservation else None
    return NodeRequest(partition, names, number, gpus, reserved)


def _of_the_job(inside: str, names: tuple[str, ...], number: int | None, gpus: int | None) -> NodeRequest:
    from gpuctl.edges import slurm
    from gpuctl.nccl.runners.slurm.node_selection import NodeRequest

    job = slurm.job(inside)
    job_nodes = slurm.expand(job.nodes) if job else []
    if not job_nodes or (foreign := [name for name in names if name not in job_nodes]):
        wrong = (
            f"{', '.join(foreign)}: not of job {inside}, in which we are" if job_nodes else f"job {inside} has no nodes"
        )
        raise InvalidInput(
            "choose Slurm nodes", wrong, f"it has {', '.join(job_nodes)}" if job_nodes else "unset SLURM_JOB_ID"
        )
    return NodeRequest(slurm.partition_of(inside), names or tuple(job_nodes), number, gpus)


def _mpi(requested: str | None) -> str:
    from gpuctl.edges import slurm
    from gpuctl.nccl.runners.slurm.command import MPI

    available = slurm.mpi_types()
    usable = [name for name in ([requested] if requested else MPI) if name in available]
    if not usable:
        wrong = f"srun has no {requested or ' nor '.join(MPI)}: it has {', '.join(available) or 'nothing'}"
        raise InvalidInput("start MPI programs by srun", wrong, "`srun --mpi=list` shows what there is")
    return usable[0]
