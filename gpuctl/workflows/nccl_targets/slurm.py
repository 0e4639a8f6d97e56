"""A Slurm job as the target of NCCL tests: its nodes, its settings, and how srun starts ranks."""

from __future__ import annotations

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import slurm
from gpuctl.nccl.launch.output import create_folder
from gpuctl.nccl.runners.slurm import node_selection
from gpuctl.nccl.runners.slurm.allocation import around
from gpuctl.nccl.runners.slurm.command import MPI, Settings
from gpuctl.nccl.runners.slurm.node_selection import NodeRequest
from gpuctl.nccl.runners.slurm.runner import SlurmRunner
from gpuctl.workflows.nccl_targets.model import NodeAccess, Notify, TargetRequest

DOING = "select Slurm nodes"


def access(request: TargetRequest, gpus: int | None, notify: Notify) -> NodeAccess:
    """Access to the selected nodes, with the racks that Slurm knows; nodes left out are reported with the reason."""
    slurm.need()
    choice = node_selection.choose(slurm.nodes(), _node_request(around(), request, gpus))
    for name, why in choice.left_out.items():
        notify(f"{name} is left out: {why}")
    settings = _settings(request, choice.partition)
    racks = {node: rack for node, rack in slurm.racks().items() if node in choice.names}
    runner = SlurmRunner(choice.names, settings, notify)
    return NodeAccess(runner, list(choice.names), f"slurm {slurm.cluster()}", racks)


def _settings(request: TargetRequest, partition: str) -> Settings:
    """Slurm settings; options that were not given keep their defaults."""
    options = request.slurm
    return Settings(
        partition=partition,
        account=options.account,
        qos=options.qos,
        reservation=options.reservation,
        mpi=_mpi(options.mpi),
        wait_s=options.queue_timeout or Settings.wait_s,
        minutes=options.job_minutes or Settings.minutes,
        search_path=request.search_path,
        save_output=create_folder(request.save_output),
    )


def _node_request(current_job: str, request: TargetRequest, gpus: int | None) -> NodeRequest:
    """Node request from the options; inside a job only the job's nodes are available."""
    number = int(request.nodes) if request.nodes.isdecimal() else None
    names = () if number is not None else tuple(slurm.expand(request.nodes))
    if number == 0:
        raise InvalidInput(DOING, "--nodes 0 selects no node", "pass a number above 0, or names")
    if current_job:
        return _of_the_job(current_job, names, number, gpus)
    reservation = request.slurm.reservation
    reserved = frozenset(slurm.reserved(reservation)) if reservation else None
    return NodeRequest(request.slurm.partition, names, number, gpus, reserved)


def _of_the_job(current_job: str, names: tuple[str, ...], number: int | None, gpus: int | None) -> NodeRequest:
    job = slurm.job(current_job)
    job_nodes = slurm.expand(job.nodes) if job else []
    if not job_nodes:
        raise InvalidInput(DOING, f"job {current_job} has no nodes", "unset SLURM_JOB_ID")
    if foreign := [name for name in names if name not in job_nodes]:
        wrong = f"{', '.join(foreign)}: not a node of job {current_job}, in which gpuctl runs"
        raise InvalidInput(DOING, wrong, f"it has {', '.join(job_nodes)}")
    return NodeRequest(slurm.partition_of(current_job), names or tuple(job_nodes), number, gpus)


def _mpi(requested: str | None) -> str:
    available = slurm.mpi_types()
    usable = [name for name in ([requested] if requested else MPI) if name in available]
    if not usable:
        wrong = f"srun supports neither {' nor '.join(MPI)}" if not requested else f"srun does not support {requested}"
        hint = f"`srun --mpi=list` shows its types: {', '.join(available) or 'none'}"
        raise InvalidInput("start MPI programs by srun", wrong, hint)
    return usable[0]
