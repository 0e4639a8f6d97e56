"""A program in a pod, and how it ended, as values."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.edges.kube import pod_exec
from gpuctl.edges.kube.cancel import Stop
from gpuctl.edges.kube.cluster import Cluster

SAYS = "/run/gpuctl/env"  # what a pod of an environment says of itself: its NODE_RANK
GRACE_S = 10.0
RUNS = "/tmp/gpuctl-runs"  # noqa: S108 - in the pod, on the node's disk: it outlives a container, and goes with the pod


@dataclass(frozen=True)
class There:
    """A pod's container to run programs in. `python`: the program there that runs ours; `runs`: where it keeps runs.

    Once `stop` is set whatever is asked there is broken off.
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
    """What to run: an argument list (no shell), in which folder, with what besides the container's environment.

    `folder` "" is the container's own. `grace_s`: how long it may take to end after SIGTERM, before SIGKILL.
    `token` marks all of its processes; what is begun in several pods together has one.
    """

    argv: Sequence[str]
    folder: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = GRACE_S
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def order(self, what: str, **more: Any) -> dict[str, Any]:
        """As it is told to a pod."""
        told = {"argv": list(self.argv), "folder": self.folder, "env": dict(self.env), "says": SAYS}
        return {"what": what, **told, "grace_s": self.grace_s, "token": self.token, **more}


@dataclass(frozen=True)
class Ended:
    """How a program ended: by itself with `code`, or by the signal `signal`; both None where nobody knows.

    `asked`: we told it to end. `left`: names of its processes that could not be ended, which hang in the kernel.
    `unlogged`: bytes of its output that the pod's disk did not take.
    """

    code: int | None
    signal: int | None = None
    asked: bool = False
    left: Sequence[str] = ()
    unlogged: int = 0

    @property
    def words(self) -> str:
        """In words for people."""
        told = ("told to end, " if self.asked else "") + self._how()
        if self.left:
            told += f"; still there: {', '.join(self.left)}"
        return told

    def _how(self) -> str:
        if self.signal is not None:
            name = signal.Signals(self.signal).name if self.signal in set(signal.Signals) else str(self.signal)
            killed = self.signal == signal.SIGKILL and not self.asked
            return f"ended by {name}" + (" (did its memory run out?)" if killed else "")
        return "how it ended is not known" if self.code is None else f"ended with exit code {self.code}"

    @property
    def well(self) -> bool:
        """Whether it ended by itself, and says that all is well."""
        return self.code == 0 and not self.left and not self.asked


def ended(told: Mapping[str, Any] | None) -> Ended:
    """From what a pod says; None where it has nothing to say."""
    if told is None:
        return Ended(None)
    return Ended(told["code"], told["signal"], told["asked"], tuple(told["left"]), told.get("unlogged", 0))
