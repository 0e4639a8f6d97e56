"""Commands that allocate Slurm nodes and start a test on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuctl.engine import mpirun_command
from gpuctl.nccl import plan
from gpuctl.nccl.model import Launch

MPI = ("pmix", "pmi2")  # preferred first
# With direct connections, Slurm's PMIx plugin lets ranks leave MPI_Init while others are still in it, and a rank that
# receives a message there crashes (open-mpi/ompi#12495). Over Slurm's connections it is rarer: 5 of 550 launches on a
# busy machine with 22.05, instead of 24 of 310.
PMIX = {"SLURM_PMIX_DIRECT_CONN": "false"}
AFTER_FIRST_S = 30  # for the other tasks, after the first has ended


@dataclass(frozen=True)
class Settings:
    """`wait_s`: seconds to wait in the queue. `minutes`: time limit of the job, after which Slurm ends it.
    `search_path`: folders with the tests, searched before the PATH. `save_output`: folder for the
    output of each launch.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    mpi: str = "pmix"
    wait_s: float = 600.0
    minutes: int = 240
    search_path: tuple[str, ...] = ()
    save_output: Path | None = None


def salloc(settings: Settings, nodes: Sequence[str], gpus: int, name: str) -> list[str]:
    """Exclusive allocation of these nodes, which survives the failure of a node."""
    options = {
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "reservation": settings.reservation,
    }
    return [
        "salloc",
        *(f"--{option}={value}" for option, value in options.items() if value),
        *(f"--job-name={name}", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"),
        *("--exclusive", f"--gres=gpu:{gpus}", "--mem=0", f"--time={settings.minutes}", "--no-kill"),
        "--wait-all-nodes=1",  # nodes that are powered down take minutes
    ]


def srun(settings: Settings, launch: Launch, job: str, name: str) -> list[str]:
    """Step of the job: ranks fill one node after the other, in the launch's order of nodes.

    `timeout` lets a node that is cut off from Slurm end its ranks by itself.
    """
    sweep, many = launch.sweep, len(launch.nodes) > 1
    a_node = sweep.gpus_per_node if many else 1
    seconds = sweep.limit_s + mpirun_command.GRACE_S
    places = ",".join(node for node in launch.nodes for _ in range(a_node))
    return [
        *_step(job, name, len(launch.nodes), a_node * len(launch.nodes), places),
        *("--distribution=arbitrary", f"--gres=gpu:{sweep.gpus_per_node}", f"--mpi={settings.mpi}"),
        # nccl-tests and NCCL bind their own threads.
        *(
            "--cpu-bind=none",
            "--kill-on-bad-exit=1",
            f"--wait={AFTER_FIRST_S}",
            f"--time={math.ceil(seconds / 60) + 1}",
        ),
        *("timeout", "--kill-after=5", f"{seconds:g}", plan.program(sweep), *plan.arguments(launch)),
    ]


def inspect_node(job: str, node: str, limit_s: float) -> list[str]:
    """Python on one node, beside the running step; its program comes by standard input."""
    beside = ("--gres=none", "--mpi=none", "--cpu-bind=none", "--quiet")
    return [*_step(job, "gpuctl-look", 1, 1, node), *beside, "timeout", f"{limit_s:g}", "python3", "-IS", "-"]


def _step(job: str, name: str, nodes: int, tasks: int, places: str) -> list[str]:
    which = (f"--jobid={job}", f"--job-name={name}", f"--nodes={nodes}", f"--ntasks={tasks}", f"--nodelist={places}")
    return ["srun", *which, "--overlap"]


def environment(settings: Settings, launch: Launch, token: str, ours: Mapping[str, str]) -> dict[str, str]:
    """Variables of the step besides gpuctl's own environment: PATH of the tests, the run's mark, and those of ranks."""
    home = ours.get("HOME", "")
    usual = [folder.replace("~", home, 1) for folder in mpirun_command.FOLDERS if home or not folder.startswith("~")]
    folders = [*settings.search_path, ours.get("PATH", "/usr/bin:/bin"), *usual]
    fabric = {f"OMPI_MCA_{name}": value for name, value in mpirun_command.BESIDE_THE_FABRIC.items()}
    beside = {name: value for name, value in {**fabric, **PMIX}.items() if name not in ours}
    return {**beside, **plan.environment(launch), "PATH": ":".join(folders), mpirun_command.VARIABLE: token}
