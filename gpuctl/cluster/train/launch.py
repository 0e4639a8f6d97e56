"""What each pod runs, by launcher. Their options: deepspeed/launcher/runner.py (0.19.8), torch/distributed/run.py."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpuctl.cluster.environment import Environment
from gpuctl.cluster.probe.model import HOSTFILE
from gpuctl.core.errors import InvalidInput

Launcher = Literal["deepspeed", "deepspeed-nossh", "torchrun"]
LAUNCHERS: tuple[Launcher, ...] = ("deepspeed", "deepspeed-nossh", "torchrun")
# The first pod needs all of these, the others the first of them.
PROGRAMS: Mapping[Launcher, Sequence[str]] = {
    "deepspeed": ("deepspeed", "pdsh", "ssh"),
    "deepspeed-nossh": ("deepspeed",),
    "torchrun": ("torchrun",),
}
DS_ENV = ("~/.deepspeed_env", ".deepspeed_env")  # what DeepSpeed reads by itself: its variables for the other pods
OF_SHELLS = re.compile(r"[$`\"'\\;&|<>(){}*?!#~%\n\t]")  # % is pdsh's own


@dataclass(frozen=True)
class Launch:
    """A training that is asked for. `nodes`: how many pods, from the first on; `processes`: in each."""

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
        """The ranks of the pods in which we start it ourselves."""
        return [0] if self.launcher == "deepspeed" else list(range(self.nodes))

    @property
    def uses_ssh(self) -> bool:
        """For one pod DeepSpeed needs none."""
        return self.launcher == "deepspeed" and self.nodes > 1


def command(launch: Launch, rank: int) -> list[str]:
    """What the pod of a rank runs."""
    where = [f"--master_addr={launch.env.host(0)}", f"--master_port={launch.env.cluster.ports.master}"]
    program = [launch.script, *launch.args]
    if launch.launcher == "torchrun":
        size = [f"--nnodes={launch.nodes}", f"--node_rank={rank}", f"--nproc_per_node={launch.processes}"]
        return ["torchrun", *size, *where, *program]
    size = [f"--hostfile={HOSTFILE}", f"--num_nodes={launch.nodes}", f"--num_gpus={launch.processes}"]
    alone = ["--no_ssh", f"--node_rank={rank}"] if launch.launcher == "deepspeed-nossh" else []
    return ["deepspeed", *size, *alone, *where, *program]


def is_by_ssh(argv: Sequence[str]) -> bool:
    """Whether such a command was begun in the first pod alone."""
    return list(argv[:1]) == ["deepspeed"] and "--no_ssh" not in argv


def size(argv: Sequence[str]) -> int:
    """In how many pods such a command was begun, or is to run."""
    found = next((match for word in argv if (match := re.fullmatch(r"--(?:nnodes|num_nodes)=(\d+)", word))), None)
    return int(found[1]) if found else 1


def variables(launch: Launch) -> dict[str, str]:
    """What is added to each container's environment; output comes as it is printed."""
    return {"PYTHONUNBUFFERED": "1", **launch.variables}


def passed_on(launch: Launch, own: Sequence[str]) -> str:
    """The file by which DeepSpeed gives variables to the other pods. `own`: what stands in those it would have read."""
    lines = [line for text in own for line in text.splitlines() if "=" in line]
    return "".join(f"{line}\n" for line in [*lines, *(f"{k}={v}" for k, v in launch.variables.items())])


def shown(argv: Sequence[str]) -> str:
    """A command as it would be typed."""
    return shlex.join(argv)


def check(launch: Launch) -> None:
    """`InvalidInput` where a shell on the other pods would read more into it than is meant."""
    if not launch.uses_ssh:
        return
    plain = [launch.script, launch.folder]  # DeepSpeed quotes arguments that have spaces, and nothing else
    said = {repr(word): word for word in [*plain, *launch.args]}
    said |= {f"the value of {name}": value for name, value in launch.variables.items()}  # it may be a secret
    for name, word in said.items():
        if OF_SHELLS.search(word) or (word in plain and " " in word) or (word in launch.args and not word):
            wrong = f"{name} goes through ssh and pdsh, where it would be read as something else"
            raise InvalidInput(f"train {launch.script}", wrong, "--launcher torchrun and deepspeed-nossh take any")


def chosen(programs: Sequence[Mapping[str, str | None]], no_ssh: Sequence[bool | None]) -> tuple[Launcher, str]:
    """The launcher for `auto`, and why: by the programs that the pods have, the first pod's first.

    Scripts for DeepSpeed run under torchrun, too: it sets all that `deepspeed.init_distributed` reads (comm/comm.py).
    Its own launcher hands each script an argument, --local_rank, that a plain one does not take (launcher/launch.py).
    """
    has_deepspeed = all(each.get("deepspeed") for each in programs)
    if all(each.get("torchrun") for each in programs):
        more = "; --launcher deepspeed-nossh is for scripts that need the argument --local_rank"
        return "torchrun", "all pods have it" + (more if has_deepspeed else "")
    if has_deepspeed and all(no_ssh):
        return "deepspeed-nossh", "not all pods have torchrun; all have a deepspeed that can start without ssh"
    if has_deepspeed and all(programs[0].get(name) for name in PROGRAMS["deepspeed"]):
        return "deepspeed", "not all pods have torchrun; all have deepspeed, and the first has pdsh"
    return "torchrun", "not all pods have it, nor a deepspeed that can be used"
