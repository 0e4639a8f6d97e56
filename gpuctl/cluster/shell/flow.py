"""A shell in one pod: kubectl does the talking with the terminal, and what a lost connection leaves there is ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuctl.cluster import pod_selection
from gpuctl.cluster.environment import CONTAINER, Environment
from gpuctl.cluster.shell import programs
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.kube import kubectl, pod_exec
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.edges.kube.errors import NotThere
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.kube.pod_exec import Command

SILENT_S, ENDING_S = 20.0, 60.0  # that a pod may say nothing; while it ends a command, which takes 4 s and many looks
NOT_KNOWN = 3  # the exit code where nobody can say how a command ended
LOST = (0, 1)  # what kubectl says of a connection that broke; 0: kubernetes/kubectl#1726
Say = Callable[[str], None]


@dataclass(frozen=True)
class Door:
    """How pods of an environment are reached: by our own client, and by kubectl with this context."""

    cluster: Cluster
    env: Environment
    context: str

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(self.context, self.env.namespace)


def enter(door: Door, pod: Object, words: Sequence[str], say: Say) -> int:
    """A shell in a pod, or the command `words`; its exit code, 3 where that is not known.

    On a terminal it gets one of its own.
    """
    name = pod_selection.name_of(pod)
    doing = f"open a shell in {name}"
    pod_selection.check(pod, doing)
    _try(door.cluster, name)
    marked = programs.mark()
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    flags = ("--stdin", "--tty") if terminal else ("--stdin",)
    argv = door.kubectl.argv("exec", *flags, name, f"--container={CONTAINER}", "--", *programs.enter(marked, words))
    code = kubectl.show(argv)
    told = broke(left_by(door.cluster, name, marked))
    if told:
        say(f"{name}: {told}")
    if told and code in LOST:
        return NOT_KNOWN
    return code if code >= 0 else 128 - code


def _try(cluster: Cluster, pod: str) -> None:
    """Whether anything may be run there, and can: kubectl tells neither apart from a command that failed."""
    pod_exec.run(cluster, pod, Command(["sh", "-c", ":"], CONTAINER, SILENT_S))


@dataclass(frozen=True)
class Left:
    """Whether a command still ran when nobody heard it any more, how many of its processes could not be ended.

    `gone`: so has its pod, with all that ran in it.
    """

    went_on: bool
    processes: int
    gone: bool = False


def left_by(cluster: Cluster, pod: str, marked: str) -> Left | None:
    """End a command that lost its connection; None where nobody knows what became of it."""
    told: list[bytes] = []
    try:
        pod_exec.run(cluster, pod, Command(programs.end(marked), CONTAINER, ENDING_S), out=told.append)
        went_on, processes = map(int, b"".join(told).split())
    except NotThere:
        return Left(False, 0, gone=True)
    except (GpuctlError, ValueError):
        return None
    return Left(bool(went_on), processes)


def broke(left: Left | None) -> str:
    """What is to be told of a command that kubectl does not hear any more; "" where it had ended."""
    if left is None:
        return "it cannot be said whether the command goes on there: the pod does not answer"
    if left.gone:
        return "the pod has gone"
    if left.processes:
        return f"{left.processes} processes of the command could not be ended"
    return "the command still ran there, and was ended" if left.went_on else ""
