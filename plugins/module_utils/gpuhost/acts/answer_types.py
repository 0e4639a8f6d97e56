"""Types of the answers of acts; a host imports none of this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from ..bounds import Count

# runs: in check mode. ended: after SIGTERM. killed: after SIGKILL. gone: before any signal. left: still there.
# changed: it is another process now. refused: a service that all share. denied: no right.
EndState = Literal["runs", "ended", "killed", "gone", "left", "changed", "refused", "denied"]


class ProcessEnd(TypedDict):
    """A shown process, and what became of it. `signals`: names of those that it got."""

    pid: Count
    state: EndState
    reason: str
    signals: list[str]


class ProcessEnds(TypedDict):
    """See `end_processes.run`. `by_descriptor`: by pidfd."""

    processes: list[ProcessEnd]
    by_descriptor: bool


class CancelledJob(TypedDict):
    """See `slurm_job.run`. `job`: fields of scontrol; None if Slurm does not know it."""

    job: dict[str, str] | None
    state: Literal["runs", "ended", "gone", "left", "changed", "denied", "unknown"]
    reason: str


class SlurmDrain(TypedDict):
    """See `slurm_node.run`. due: in check mode. others: somebody else has drained it. done: as requested."""

    node: str
    state: Literal["due", "done", "others", "failed", "unknown"]
    slurm_state: str | None
    slurm_reason: str | None
    reason: str


class Restarted(TypedDict):
    """See `restart.run`. `before` and `after`: ActiveState and start of the unit."""

    state: Literal["due", "done", "absent", "busy", "failed"]
    unit: str
    before: dict[str, str]
    after: dict[str, str]
    reason: str


class GpuReset(TypedDict):
    """See `gpu_reset.run`."""

    state: Literal["due", "done", "busy", "changed", "failed", "unknown"]
    reason: str
    recovery: str | None


class Reboot(TypedDict):
    """See `reboot.run`. due: in check mode. done: the reboot has begun. changed: it has booted since."""

    state: Literal["due", "done", "busy", "changed", "failed", "unknown"]
    boot_id: str
    up: bool
    reason: str


class GpuSession(TypedDict):
    """Session of a reservation on this host. `devices`: minor numbers of its GPUs."""

    session: str
    attempt: Count
    devices: list[Count]


class GpuSessionUse(TypedDict):
    """See `session_use.read`; None if it could not be read."""

    session: str
    gpu_percent: float | None
    connections: Count | None


class GpuSessions(TypedDict):
    """See `gpu_sessions.run`. `refused`: why the order was not carried out. `fence`: the highest that is known.

    `open_by`: programs of people that have a GPU open without a session, as texts; with `refused` they are the cause.
    """

    refused: str
    fence: Count
    sessions: list[GpuSession]
    terminals: Count
    open_by: list[str]
    uses: list[GpuSessionUse]


ACTS: Mapping[str, type] = {
    "end processes": ProcessEnds,
    "cancel job": CancelledJob,
    "slurm drain": SlurmDrain,
    "restart": Restarted,
    "reset gpu": GpuReset,
    "reboot": Reboot,
    "gpu sessions": GpuSessions,
}
