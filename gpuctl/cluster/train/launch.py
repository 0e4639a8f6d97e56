"""Command lines of the launchers, by pod. Options: deepspeed/launcher/runner.py (0.19.8), torch/distributed/run.py."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.cluster.environment import Environment
from gpuctl.cluster.probe.model import HOSTFILE
from gpuctl.cluster.train.request import Launcher
from gpuctl.core.errors import InvalidInput

LAUNCHERS: tuple[Launcher, ...] = ("deepspeed", "deepspeed-nossh", "torchrun")
# The first pod needs all of these, the others the first of them.
PROGRAMS: Mapping[Launcher, Sequence[str]] = {
    "deepspeed": ("deepspeed", "pdsh", "ssh"),
    "deepspeed-nossh": ("deepspeed",),
    "torchrun": ("torchrun",),
}
DS_ENV = ("~/.deepspeed_env", ".deepspeed_env")  # files from which DeepSpeed reads variables for the other pods
GRACE_S = 15.0  # where no cluster file gives a grace period
KILL_S = 2.0  # of a pod's grace period, for SIGKILL and the record of how the training ended
SHELL_CHARACTERS = re.compile(r"[$`\"'\\;&|<>(){}*?!#~%\n\t]")  # % is pdsh's own


@dataclass(frozen=True)
class Launch:
    """A requested training. `nodes`: number of pods, from the first one; `processes`: per pod."""

    env: Environment
    launcher: Launcher
    script: str
    args: Sequence[str]
    nodes: int
    processes: int
    folder: str
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def starts(self) -> list[int]:
        """Ranks of the pods in which gpuctl starts a process."""
        return [0] if self.launcher == "deepspeed" else list(range(self.nodes))

    @property
    def uses_ssh(self) -> bool:
        """DeepSpeed needs no ssh for a single pod."""
        return self.launcher == "deepspeed" and self.nodes > 1


def grace_s(env: Environment) -> float:
    """Return the seconds between SIGTERM and SIGKILL of a training: its pods' grace period, nearly all of it."""
    return env.cluster.pods.grace_period - KILL_S


def command(launch: Launch, rank: int) -> list[str]:
    """Return the command line for the pod of a rank."""
    where = [f"--master_addr={launch.env.host(0)}", f"--master_port={launch.env.cluster.ports.master}"]
    program = [launch.script, *launch.args]
    if launch.launcher == "torchrun":
        size = [f"--nnodes={launch.nodes}", f"--node_rank={rank}", f"--nproc_per_node={launch.processes}"]
        return ["torchrun", *size, *where, *program]
    size = [f"--hostfile={HOSTFILE}", f"--num_nodes={launch.nodes}", f"--num_gpus={launch.processes}"]
    alone = ["--no_ssh", f"--node_rank={rank}"] if launch.launcher == "deepspeed-nossh" else []
    return ["deepspeed", *size, *alone, *where, *program]


def is_by_ssh(argv: Sequence[str]) -> bool:
    """Return whether the command was started in the first pod only."""
    return list(argv[:1]) == ["deepspeed"] and "--no_ssh" not in argv


def size(argv: Sequence[str]) -> int:
    """Return the number of pods that a command line names."""
    count = next((match for word in argv if (match := re.fullmatch(r"--(?:nnodes|num_nodes)=(\d+)", word))), None)
    return int(count[1]) if count else 1


def variables(launch: Launch) -> dict[str, str]:
    """Variables added to each container's environment; output is unbuffered."""
    return {"PYTHONUNBUFFERED": "1", **launch.variables}


def passed_on(launch: Launch, existing: Sequence[str]) -> str:
    """Render the file by which DeepSpeed passes variables on. `existing`: content of the files it would have read."""
    lines = [line for text in existing for line in text.splitlines() if "=" in line]
    return "".join(f"{line}\n" for line in [*lines, *(f"{k}={v}" for k, v in launch.variables.items())])


def shown(argv: Sequence[str]) -> str:
    """Format a command as it would be typed."""
    return shlex.join(argv)


def check(launch: Launch) -> None:
    """`InvalidInput` if a shell on the other pods would expand an argument."""
    if not launch.uses_ssh:
        return
    plain = [launch.script, launch.folder]  # DeepSpeed quotes arguments that have spaces, and nothing else
    texts = {repr(word): word for word in [*plain, *launch.args]}
    texts |= {f"the value of {name}": value for name, value in launch.variables.items()}  # it may be a secret
    for name, word in texts.items():
        if SHELL_CHARACTERS.search(word) or (word in plain and " " in word) or (word in launch.args and not word):
            wrong = f"{name} goes through ssh and pdsh, where it would be read as something else"
            raise InvalidInput(f"train {launch.script}", wrong, "--launcher torchrun and deepspeed-nossh take any")


def chosen(programs: Sequence[Mapping[str, str | None]], no_ssh: Sequence[bool | None]) -> tuple[Launcher, str]:
    """The launcher for `auto`, and the reason. `programs`: those found in each pod, the first pod's first.

    DeepSpeed scripts run under torchrun, too: it sets everything that `deepspeed.init_distributed` reads
    (comm/comm.py).
    DeepSpeed's launcher passes --local_rank to each script, which a plain script does not accept (launcher/launch.py).
    """
    has_deepspeed = all(found_programs.get("deepspeed") for found_programs in programs)
    if all(found_programs.get("torchrun") for found_programs in programs):
        more = "; --launcher deepspeed-nossh is for scripts that need the argument --local_rank"
        return "torchrun", "all pods have it" + (more if has_deepspeed else "")
    if has_deepspeed and all(no_ssh):
        return "deepspeed-nossh", "not all pods have torchrun; all have a deepspeed that can start without ssh"
    if has_deepspeed and all(programs[0].get(name) for name in PROGRAMS["deepspeed"]):
        return "deepspeed", "not all pods have torchrun; all have deepspeed, and the first has pdsh"
    return "torchrun", "not all pods have it, nor a deepspeed that can be used"
