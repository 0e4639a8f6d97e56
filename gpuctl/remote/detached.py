"""Programs in pods that keep running without a listener, can be followed again, and are ended for certain."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.remote import answer_types
from gpuctl.remote.attached import StopSignal
from gpuctl.remote.connection import connect, fitting
from gpuctl.remote.model import PodTarget, ProcessExit, Program, process_exit
from gpuctl.remote.supervisor import protocol


@dataclass(frozen=True)
class Run:
    """A pod's record of a run. `began` and `finished_at`: seconds since 1970 by the pod's clock; `about`: a description
    for people.

    A run that is neither `running` nor has an `exit` lost its supervisor (killed): how it ended is unknown.
    """

    name: str
    token: str
    argv: Sequence[str]
    actor: str
    about: str
    began: float
    running: bool
    exit: ProcessExit | None
    finished_at: float | None = None


@dataclass(frozen=True)
class PodRuns:
    """A pod's recorded `runs`, oldest first, and its marked processes: token -> command line.

    A marked process may belong to no run of this pod: ssh started it there for a run of another pod.
    """

    runs: Sequence[Run] = ()
    processes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Label:
    """Name, actor and description of a run, for people."""

    name: str
    actor: str
    about: str


def run_folder(target: PodTarget, name: str) -> str:
    """Return the folder of a run's files in the pod."""
    return f"{target.runs}/{name}"


def start(target: PodTarget, program: Program, label: Label, files: Mapping[str, str] | None = None) -> None:
    """Start a detached program; `files`: texts for its folder. `Refused`: "busy" if another run is active, "start"."""
    label_fields = {"name": label.name, "actor": label.actor, "about": label.about, "files": dict(files or {})}
    _request(target, program.order(protocol.START, runs=target.runs, **label_fields), answer_types.Started)


def token() -> str:
    """Create a mark for a detached program that runs in several pods together."""
    return protocol.DETACHED + uuid.uuid4().hex


def inspect(target: PodTarget) -> PodRuns:
    """Return a pod's recorded runs and its processes with such a `token`."""
    answer = _request(target, {"what": protocol.INSPECT, "runs": target.runs}, answer_types.Inspection)
    doing = f"read the runs of the pod {target.pod}"
    records = [
        fitting(doing, record, answer_types.RunRecord, f"runs[{number}]", extra=True)
        for number, record in enumerate(answer["runs"])
    ]
    return PodRuns([_run(record) for record in records], answer["processes"])


def list_runs(target: PodTarget) -> list[Run]:
    """Return all runs that a pod has recorded, oldest first."""
    return list(inspect(target).runs)


def stop(target: PodTarget, name: str) -> ProcessExit:
    """End a run with everything it started; return its exit status. `Refused` ("none") if the pod has no such run."""
    order = {"what": protocol.STOP, "runs": target.runs, "name": name}
    answer = _request(target, order, answer_types.RunRecord)
    return process_exit(answer["exit"])


def sweep(target: PodTarget, token: str, grace_s: float) -> list[str]:
    """End every process of a program, such as those started by ssh from other pods; return what could not be ended."""
    left: list[str] = _request(
        target, {"what": protocol.SWEEP, "token": token, "grace_s": grace_s}, answer_types.Swept
    )["left"]
    return left


@dataclass
class Follower:
    """Follows the output of a run; `offset`: bytes received so far, where the next connection continues.

    `on_alive` is called repeatedly while the pod responds.
    """

    target: PodTarget
    name: str
    out: Callable[[bytes], object]
    skipped: Callable[[int], object] = lambda _: None
    offset: int = 0
    on_alive: Callable[[], object] = lambda: None

    def follow(self, enough: StopSignal) -> Run | None:
        """Follow until the run ends; None if `enough` was set first. `Unreachable` if the connection broke."""
        order = {"what": protocol.FOLLOW, "runs": self.target.runs, "name": self.name, "offset": self.offset}
        with connect(self.target, order) as connection:
            while not enough.is_set():
                for kind, payload in connection.messages():
                    if kind == protocol.OUT:
                        self.offset += len(payload)
                        self.out(payload)
                    elif kind == protocol.ANSWER:
                        count = connection.decode(payload, answer_types.Skipped)["skipped"]
                        self.offset += count
                        self.skipped(count)
                    elif kind == protocol.ENDED:
                        return _run(connection.decode(payload, answer_types.RunRecord, extra=True))
                if connection.answers:
                    self.on_alive()
        return None


def _request(target: PodTarget, order: Mapping[str, Any], shape: object) -> Any:
    with connect(target, order) as connection:
        return connection.answer(shape, extra=True)


def _run(record: answer_types.RunRecord) -> Run:
    status = record["exit"]
    return Run(
        name=record["name"],
        token=record["token"],
        argv=record["argv"],
        actor=record["actor"],
        about=record["about"],
        began=record["began"],
        running=record["running"],
        exit=process_exit(status) if status else None,
        finished_at=status.get("at") if status else None,
    )
