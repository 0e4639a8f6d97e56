"""A program in a pod and its exit status, as values."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster

ENV_FILE = "/run/gpuctl/env"  # written when a pod of an environment starts: its NODE_RANK
GRACE_S = 10.0
RUNS = "/tmp/gpuctl-runs"  # noqa: S108 - in the pod, on the node's disk: it outlives a container and is removed with the pod


@dataclass(frozen=True)
class PodTarget:
    """A pod's container to run programs in. `python`: the interpreter there; `runs`: the folder of detached runs.

    Once `stop` is set, pending requests to the pod are broken off.
    """

    cluster: Cluster
    pod: str
    container: str
    python: str = "python3"
    runs: str = RUNS
    stop: Stop = field(default_factory=Stop, compare=False)
    start: Callable[[Cluster, str, pod_exec.Command], pod_exec.Program] = pod_exec.start


@dataclass(frozen=True)
class Program:
    """A program to run: an argument list (no shell), its folder, and variables besides the container's environment.

    An empty `folder` is the container's own. `grace_s`: time to end after SIGTERM before SIGKILL.
    `token` marks all processes of the program; a program started in several pods together has one token.
    """

    argv: Sequence[str]
    folder: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = GRACE_S
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def order(self, what: str, **more: Any) -> dict[str, Any]:
        """Serialise the program as an order for the supervisor."""
        program = {"argv": list(self.argv), "folder": self.folder, "env": dict(self.env), "env_file": ENV_FILE}
        return {"what": what, **program, "grace_s": self.grace_s, "token": self.token, **more}


@dataclass(frozen=True)
class ProcessExit:
    """Exit status of a program: `code` if it ended by itself, or `signal`; both None if unknown.

    `requested`: we asked it to end. `left`: processes that could not be ended (blocked in the kernel).
    `unlogged`: bytes of output that did not fit on the pod's disk.
    """

    code: int | None
    signal: int | None = None
    requested: bool = False
    left: Sequence[str] = ()
    unlogged: int = 0

    @property
    def description(self) -> str:
        """Describe the exit for people."""
        text = ("ended on request, " if self.requested else "") + self._how()
        if self.left:
            text += f"; still running: {', '.join(self.left)}"
        return text

    def _how(self) -> str:
        if self.signal is not None:
            name = signal.Signals(self.signal).name if self.signal in set(signal.Signals) else str(self.signal)
            killed = self.signal == signal.SIGKILL and not self.requested
            return f"ended by {name}" + (" (out of memory?)" if killed else "")
        return "its exit status is unknown" if self.code is None else f"ended with exit code {self.code}"

    @property
    def succeeded(self) -> bool:
        """True if the program ended by itself with exit code 0 and left no processes."""
        return self.code == 0 and not self.left and not self.requested


def process_exit(answer: Mapping[str, Any] | None) -> ProcessExit:
    """Read an exit status from a pod's answer; unknown if there is none."""
    if answer is None:
        return ProcessExit(None)
    return ProcessExit(
        answer["code"], answer["signal"], answer["requested"], tuple(answer["left"]), answer.get("unlogged", 0)
    )
