"""The command line of mpirun, shared by the module and by gpuctl over ssh."""

from __future__ import annotations

from dataclasses import dataclass

from ..gpuhost.facts import folders

VARIABLE = "GPUCTL_RUN"  # in the environment of every process of a run, to find them again
# A node without a connection to us ends its ranks itself, this long after the limit.
GRACE_S = 30
# mpirun gives up a silent node after 10 s and three probes 5 s apart.
KEEPALIVE = {"time": "10", "intvl": "5", "probes": "3"}
# MPI only starts the ranks and exchanges small messages: over TCP, so that it neither uses the fabric nor hangs in it.
# Shared memory within a node stays allowed, under any name, as Open MPI 4.1 sometimes crashes there over TCP. Bridges
# with the same address on every node are excluded, as healthy nodes would hang (open-mpi/ompi#6377).
BRIDGES = ("docker0", "docker_gwbridge", "virbr0", "cni0", "cbr0", "podman0", "nerdctl0", "lxcbr0", "lxdbr0")
BESIDE_THE_FABRIC = {
    "pml": "ob1",
    "btl": "^openib,ofi,uct,usnic,smcuda",
    "btl_tcp_if_exclude": ",".join(["127.0.0.0/8", *BRIDGES]),
}
FOLDERS = folders.FOLDERS  # shared with the facts of a node


@dataclass(frozen=True)
class MpirunRequest:
    """A run. `hosts`: names or addresses among the nodes. `names`: environment variables to pass to every rank."""

    hosts: list[str]
    gpus: int
    arguments: list[str]
    names: list[str]
    limit_s: float
    as_root: bool = False
    ssh_args: str = ""


def gpus_per_process(hosts: list[str], gpus: int) -> list[str]:
    """The -g argument of nccl-tests: all GPUs on a single node, one per process on several."""
    return ["-g", str(gpus if len(hosts) == 1 else 1)]


def full_command(request: MpirunRequest) -> list[str]:
    """The command line for the first node, without mpirun for a single node.

    "{program}" is a placeholder for the test's path there.
    """
    around = mpirun(request) if len(request.hosts) > 1 else []
    return [*around, "timeout", "--kill-after=5", f"{request.limit_s + GRACE_S:g}", "{program}", *request.arguments]


def mpirun(request: MpirunRequest) -> list[str]:
    """Arguments of mpirun (Open MPI 4 and 5) up to the program; ranks fill one node after the other.

    Values of variables are in mpirun's environment (`-x NAME`), not on its command line. An OMPI_MCA_… variable
    overrides its setting in BESIDE_THE_FABRIC.
    """
    beside = [(name, value) for name, value in BESIDE_THE_FABRIC.items() if f"OMPI_MCA_{name}" not in request.names]
    ssh = " ".join(["-o BatchMode=yes -o ConnectTimeout=10", request.ssh_args]).strip()
    return [
        "mpirun",
        *(("--allow-run-as-root",) if request.as_root else ()),
        *("--host", ",".join(f"{host}:{request.gpus}" for host in request.hosts)),
        *("-n", str(request.gpus * len(request.hosts))),
        # nccl-tests and NCCL bind their own threads; on few cores mpirun would refuse to bind.
        *("--map-by", "slot", "--bind-to", "none"),
        *(word for setting in beside for word in ("--mca", *setting)),
        # The first node starts all others directly, so those need no ssh to each other.
        *("--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "plm_rsh_args", ssh),
        *(word for name in sorted([*request.names, VARIABLE]) for word in ("-x", name)),
    ]


def environment(variables: dict[str, str], token: str) -> dict[str, str]:
    """The environment of mpirun: the run's mark for all processes, and the variables of every rank."""
    variable = f"{VARIABLE}={token}"
    return {
        # The commands by which Open MPI 4 and 5 start their daemons on the other nodes.
        "OMPI_MCA_orte_launch_agent": f"env {variable} orted",
        "PRTE_MCA_prte_launch_agent": f"env {variable} prted",
        **{f"{of}_MCA_oob_tcp_keepalive_{name}": value for of in ("OMPI", "PRTE") for name, value in KEEPALIVE.items()},
        **variables,
        VARIABLE: token,
    }
