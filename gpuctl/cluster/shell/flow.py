"""Run a command in a pod on the user's terminal through kubectl, and end it for certain."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuctl.cluster import pod_selection
from gpuctl.cluster.access import PodAccess
from gpuctl.cluster.environment import CONTAINER
from gpuctl.cluster.shell import programs
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import NotFound
from gpuctl.edges.kube import kubectl, pod_exec
from gpuctl.edges.kube.cluster import Cluster, Object
from gpuctl.edges.kube.pod_exec import Command

SILENT_S, ENDING_S = (
    20.0,
    60.0,
)  # maximum silence of a pod; longer while it ends a command, which takes 4 s and several checks
NOT_KNOWN = 3  # the exit code if it is unknown how a command ended
LOST = (0, 1)  # kubectl's exit codes for a broken connection; 0: kubernetes/kubectl#1726
Show = Callable[[str], None]


def enter(access: PodAccess, pod: Object, argv: Sequence[str], show: Show) -> int:
    """Open a shell in a pod or run the command `argv`; return its exit code, 3 if unknown.

    On a terminal, the program gets a terminal, too.
    """
    name = pod_selection.name_of(pod)
    doing = f"open a shell in {name}"
    pod_selection.check(pod, doing)
    _check_exec(access.cluster, name)
    mark = programs.mark()
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    flags = ("--stdin", "--tty") if terminal else ("--stdin",)
    command = access.kubectl.argv("exec", *flags, name, f"--container={CONTAINER}", "--", *programs.enter(mark, argv))
    code = kubectl.show(command)
    message = broke(left_by(access.cluster, name, mark))
    if message:
        show(f"{name}: {message}")
    if message and code in LOST:
        return NOT_KNOWN
    return code


def _check_exec(cluster: Cluster, pod: str) -> None:
    """Check that programs may run there, and can: kubectl does not distinguish that from a command that failed."""
    pod_exec.run(cluster, pod, Command(["sh", "-c", ":"], CONTAINER, SILENT_S))


@dataclass(frozen=True)
class Left:
    """State of a command after its connection broke. `processes`: number of those that could not be ended.

    `gone`: the pod is gone, with everything that ran in it.
    """

    went_on: bool
    processes: int
    gone: bool = False


def left_by(cluster: Cluster, pod: str, mark: str) -> Left | None:
    """End a command that lost its connection; None if its state is unknown."""
    try:
        _, output = pod_exec.read(cluster, pod, Command(programs.end(mark), CONTAINER, ENDING_S))
        went_on, processes = map(int, output.split())
    except NotFound:
        return Left(went_on=False, processes=0, gone=True)
    except (GpuctlError, ValueError):
        return None
    return Left(bool(went_on), processes)


def broke(left: Left | None) -> str:
    """Message about a command that kubectl lost; "" if it had ended."""
    if left is None:
        return "it is unknown whether the command still runs there: the pod does not answer"
    if left.gone:
        return "the pod is gone"
    if left.processes:
        return f"{left.processes} processes of the command could not be ended"
    return "the command still ran there, and was ended" if left.went_on else ""
