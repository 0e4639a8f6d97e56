"""The command line of mpirun: the same for the module and for gpuctl over ssh."""

from __future__ import annotations

from dataclasses import dataclass

from ..gpuhost.facts import folders

VARIABLE = "GPUCTL_RUN"  # in the environment of every process of a run: how they are found again
# A node that is cut off from us ends its ranks by itself, this long after the limit.
GRACE_S = 30
# How long a node may be silent before mpirun gives it up: 10 s, then three questions 5 s apart.
KEEPALIVE = {"time": "10", "intvl": "5", "probes": "3"}
# MPI itself only starts the ranks and passes a few words, over TCP: it must not touch the fabric, nor hang in it. It is
# left its shared memory within a node, whose name differs between versions: over TCP, Open MPI 4.1 crashes there now
# and then. Bridges with the same address on every node lead nowhere (open-mpi/ompi#6377): healthy nodes would hang.
BRIDGES = ("docker0", "docker_gwbridge", "virbr0", "cni0", "cbr0", "podman0", "nerdctl0", "lxcbr0", "lxdbr0")
BESIDE_THE_FABRIC = {
    "pml": "ob1",
    "btl": "^openib,ofi,uct,usnic,smcuda",
    "btl_tcp_if_exclude": ",".join(["127.0.0.0/8", *BRIDGES]),
}
FOLDERS = folders.FOLDERS  # the facts of a node look there, too


@dataclass(frozen=True)
class MpirunRequest:
    """A run. `hosts`: as they know each other. `names`: of the variables that every rank gets."""

    hosts: list[str]
    gpus: int
    arguments: list[str]
    names: list[str]
    limit_s: float
    as_root: bool = False
    ssh_args: str = ""


def gpus_per_process(hosts: list[str], gpus: int) -> list[str]:
    """How many GPUs each process takes: all of a single node, one each on several."""
    return ["-g", str(gpus if len(hosts) == 1 else 1)]


def full_command(request: MpirunRequest) -> list[str]:
    """Everything that is started on the first node; "{program}" stands for the test's path there.

    A node alone needs no mpirun.
    """
    around = mpirun(request) if len(request.hosts) > 1 else []
    return [*around, "timeout", "--kill-after=5", f"{request.limit_s + GRACE_S:g}", "{program}", *request.arguments]


def mpirun(request: MpirunRequest) -> list[str]:
    """The mpirun of Open MPI 4 and 5 up to the program, as an argument list; ranks fill one node after the other.

    Values of the environment stand in mpirun's own (`-x NAME`), not on its command line. What it sets of
    BESIDE_THE_FABRIC (as OMPI_MCA_…) wins.
    """
    beside = [(name, value) for name, value in BESIDE_THE_FABRIC.items() if f"OMPI_MCA_{name}" not in request.names]
    ssh = " ".join(["-o BatchMode=yes -o ConnectTimeout=10", request.ssh_args]).strip()
    return [
        "mpirun",
        *(("--allow-run-as-root",) if request.as_root else ()),
        *("--host", ",".join(f"{host}:{request.gpus}" for host in request.hosts)),
        *("-n", str(request.gpus * len(request.hosts))),
        # nccl-tests and NCCL bind their own threads; with few cores binding would refuse to start.
        *("--map-by", "slot", "--bind-to", "none"),
        *(word for setting in beside for word in ("--mca", *setting)),
        # The first node starts all others itself: they need no way to each other but the fabric's.
        *("--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "plm_rsh_args", ssh),
        *(word for name in sorted([*request.names, VARIABLE]) for word in ("-x", name)),
    ]


def environment(variables: dict[str, str], token: str) -> dict[str, str]:
    """What mpirun is started with: the run's mark on all it starts, and what every rank gets."""
    variable = f"{VARIABLE}={token}"
    return {
        # Open MPI 4 and 5 start their helper on the other nodes by these.
        "OMPI_MCA_orte_launch_agent": f"env {variable} orted",
        "PRTE_MCA_prte_launch_agent": f"env {variable} prted",
        **{f"{of}_MCA_oob_tcp_keepalive_{name}": value for of in ("OMPI", "PRTE") for name, value in KEEPALIVE.items()},
        **variables,
        VARIABLE: token,
    }
