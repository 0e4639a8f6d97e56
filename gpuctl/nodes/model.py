"""Use of GPUs as frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Facts = Mapping[str, Any]  # result of gpuhost/facts/gpu_use.py


def nothing_read(facts: Facts) -> bool:
    """True if the whole reading failed; then `unread` has the reason alone."""
    return "*" in facts["unread"]


class State(StrEnum):
    """Use of a GPU. RESERVED: given to a job or pod that has no process on it. MEMORY_IN_USE: without a process."""

    USED = "in use"
    RESERVED = "reserved"
    MEMORY_IN_USE = "memory held"
    IDLE = "idle"
    UNKNOWN = "unknown"


# The use of a GPU with instances: the first of these that one of them has.
PRECEDENCE = (State.USED, State.MEMORY_IN_USE, State.UNKNOWN, State.RESERVED, State.IDLE)


@dataclass(frozen=True)
class Instance:
    """MIG device of a GPU; memory in MiB."""

    gi: int | None
    ci: int | None
    state: State
    why: str = ""
    memory_mib: int | None = None
    used_mib: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU. `index`: as nvidia-smi counts. `why`: reason for UNKNOWN, RESERVED and MEMORY_IN_USE. None: no value.

    `holders`: jobs and pods that have it, as text. `shared`: given to several by time slicing. `mps`: an MPS server
    or client is on it.
    """

    index: int
    uuid: str | None
    model: str | None
    state: State
    why: str = ""
    memory_mib: int | None = None
    used_mib: int | None = None
    busy_percent: int | None = None
    mig: bool = False
    instances: tuple[Instance, ...] = ()
    holders: tuple[str, ...] = ()
    shared: bool = False
    mps: bool = False


@dataclass(frozen=True)
class Process:
    """Process on GPUs. `start_ticks`: with the pid it is one process for ever, the pid alone is used again.

    `places`: index and GPU instance of each GPU. `used_mib`: over all of them, None if a part is unknown. `context`:
    False if it only holds the device open.
    """

    pid: int
    name: str
    command: str
    state: str | None
    blocked_in: str
    since: int | None
    start_ticks: int | None
    places: tuple[tuple[int, int | None], ...]
    used_mib: int | None
    type: str
    daemon: bool = False
    context: bool = True

    @property
    def gpus(self) -> tuple[int, ...]:
        """Indices, ascending."""
        return tuple(sorted({index for index, _ in self.places}))


@dataclass(frozen=True)
class User:
    """Owner of processes on a node. `kind`: see gpu_owners. `who`: for people; `person`: login name, "" if unknown.

    `what`: job number, or name of the pod's container. `details`: whatever else is known, by name. `foreign`: GPU ->
    to whom it belongs instead. `why`: reason if the owner is unknown. `mine`: the person is the one who asks.
    `gpu_count` and `started` of a pod or job, if only the scheduler was asked; `allocated`: its GPUs by number.
    """

    kind: str
    who: str
    person: str = ""
    what: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()
    foreign: Mapping[int, str] = field(default_factory=dict)
    unallocated: tuple[int, ...] = ()
    why: str = ""
    mine: bool = False
    gpu_count: int | None = None
    started: int | None = None
    allocated: tuple[int, ...] = ()

    @property
    def gpus(self) -> tuple[int, ...]:
        return tuple(sorted({gpu for process in self.processes for gpu in process.gpus})) or self.allocated

    @property
    def since(self) -> int | None:
        """Start of the oldest process; None if no start is known."""
        starts = [process.since for process in self.processes if process.since is not None]
        return min(starts, default=self.started)

    @property
    def used_mib(self) -> int | None:
        """Memory of all processes; None if a part is unknown."""
        parts = [process.used_mib for process in self.processes if process.context]
        return None if None in parts else sum(part for part in parts if part is not None)

    @property
    def daemon(self) -> bool:
        """True if all processes are services of the GPUs themselves, such as the MPS server."""
        return bool(self.processes) and all(process.daemon for process in self.processes)


@dataclass(frozen=True)
class SchedulerUse:
    """GPUs of a node in a scheduler's books. `allocated`: to pods or jobs; `withdrawn`: by the device plugin, as ill.

    `source`: "api" of Kubernetes, or "slurm". `not_ready`: reason of the kubelet's state; "" if it is ready.
    `no_answer`: why the node itself did not answer; "" if it was not asked.
    """

    allocated: int
    withdrawn: int = 0
    not_ready: str = ""
    source: str = "api"
    no_answer: str = ""


@dataclass(frozen=True)
class SlurmState:
    """State of a node in Slurm: sinfo's word with its suffix, why, who set that, and since when (Unix time)."""

    state: str
    reason: str = ""
    by: str = ""
    since: int | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """Use of a node. `type`: instance type, else model of its GPUs; "" if unknown.

    `total`: number of GPUs, also lost ones; None if unknown. `uncounted`: reason if the driver's count, which has lost
    ones too, could not be read. `why`: reason if nothing is known of its GPUs. `now`: Unix time on the node when its
    facts were taken. `quiet`: GPU -> seconds without work, see readings.py. `scheduler`: what the scheduler knows, of a
    node that was not asked itself. `slurm`: its state there, if Slurm was asked.
    """

    name: str
    type: str = ""
    gpus: tuple[Gpu, ...] = ()
    users: tuple[User, ...] = ()
    total: int | None = None
    driver: str = ""
    now: int | None = None
    why: str = ""
    reached: bool = True
    quiet: Mapping[int, Quiet] = field(default_factory=dict)
    scheduler: SchedulerUse | None = None
    slurm: SlurmState | None = None
    uncounted: str = ""

    def count(self, state: State) -> int:
        """GPUs in this state; those that the driver has lost, or that the scheduler gave to nobody, are UNKNOWN."""
        if self.scheduler is not None:
            allocated = self.scheduler.allocated
            return {State.RESERVED: allocated, State.UNKNOWN: (self.total or 0) - allocated}.get(state, 0)
        lost = (self.total or 0) - len(self.gpus) if state is State.UNKNOWN else 0
        return sum(gpu.state is state for gpu in self.gpus) + max(0, lost)


@dataclass(frozen=True)
class Quiet:
    """Time without work on a GPU, in seconds, and the readings that show it."""

    seconds: int
    readings: int


@dataclass(frozen=True)
class Fleet:
    """Facts of nodes at one time. `unasked`: node -> reason why it has no facts. `taken`: Unix time."""

    nodes: Mapping[str, Facts]
    unasked: Mapping[str, str] = field(default_factory=dict)
    taken: int = 0

    @property
    def names(self) -> Sequence[str]:
        return [*self.nodes, *self.unasked]
