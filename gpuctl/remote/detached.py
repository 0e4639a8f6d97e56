"""Programs in pods that go on when nobody listens, are listened to again, and are ended for certain."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.remote.attached import Asks
from gpuctl.remote.connection import link
from gpuctl.remote.model import Ended, Program, There, ended
from gpuctl.remote.supervisor import frames, protocol


@dataclass(frozen=True)
class Run:
    """What a pod knows of a run. `began` and `ended_at`: seconds since 1970 by its clock; `about`: for people.

    Where it is neither `running` nor `ended`, what kept it was killed: nobody knows how it ended.
    """

    name: str
    token: str
    argv: Sequence[str]
    by: str
    about: str
    began: float
    running: bool
    ended: Ended | None
    ended_at: float | None = None


@dataclass(frozen=True)
class Known:
    """The `runs` that a pod knows of, oldest first, and what lives there: by its token, the command line of a process.

    The latter may be of no run of this pod: ssh began it there for one of another pod.
    """

    runs: Sequence[Run] = ()
    living: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Label:
    """What a run is called, whose it is, and what it is, for people."""

    name: str
    by: str
    about: str


def folder(there: There, name: str) -> str:
    """Where a run's own files are in the pod."""
    return f"{there.runs}/{name}"


def keep(there: There, program: Program, label: Label, files: Mapping[str, str] | None = None) -> None:
    """Start it, to go on without us; `files`: texts for its folder. `Refused`: "busy" where another run is, "start"."""
    told = {"name": label.name, "by": label.by, "about": label.about, "files": dict(files or {})}
    _ask(there, program.order(protocol.KEEP, runs=there.runs, **told))


def token() -> str:
    """A mark for what is begun in several pods together, to go on without us."""
    return protocol.KEPT + uuid.uuid4().hex


def known(there: There) -> Known:
    """What a pod knows of runs, and what lives there of any with such a `token`."""
    told = _ask(there, {"what": protocol.LOOK, "runs": there.runs})
    return Known([_run(each) for each in told["runs"]], told["living"])


def look(there: There) -> list[Run]:
    """All runs that a pod knows of, oldest first."""
    return list(known(there).runs)


def stop(there: There, name: str) -> Ended:
    """End it with all that it started; how it ended. `Refused` ("none") where the pod knows of no such run."""
    told = _ask(there, {"what": protocol.STOP, "runs": there.runs, "name": name})
    return ended(told["ended"])


def sweep(there: There, token: str, grace_s: float) -> list[str]:
    """End whatever in the pod belongs to a program, such as what others began there by ssh; what is left of it."""
    return [str(name) for name in _ask(there, {"what": protocol.SWEEP, "token": token, "grace_s": grace_s})["left"]]


@dataclass
class Follower:
    """Hears a run; `offset`: how many bytes of its output were heard by now, so that it goes on from there.

    `answers` is called again and again while the pod does.
    """

    there: There
    name: str
    out: Callable[[bytes], object]
    skipped: Callable[[int], object] = lambda _: None
    offset: int = 0
    answers: Callable[[], object] = lambda: None

    def follow(self, enough: Asks) -> Run | None:
        """Until it has ended; None where we were told that it is `enough`. `Unreachable` where the connection broke."""
        order = {"what": protocol.FOLLOW, "runs": self.there.runs, "name": self.name, "offset": self.offset}
        with link(self.there, order) as found:
            while not enough.is_set():
                for kind, payload in found.messages():
                    if kind == protocol.OUT:
                        self.offset += len(payload)
                        self.out(payload)
                    elif kind == protocol.ANSWER:
                        count = frames.unpack(payload)["skipped"]
                        self.offset += count
                        self.skipped(count)
                    elif kind == protocol.ENDED:
                        return _run(frames.unpack(payload))
                if found.answers:
                    self.answers()
        return None


def _ask(there: There, order: Mapping[str, Any]) -> Any:
    with link(there, order) as found:
        return found.answer()


def _run(told: Mapping[str, Any]) -> Run:
    named = ("name", "token", "argv", "by", "about", "began", "running")
    how = told["ended"]
    return Run(
        **{key: told[key] for key in named}, ended=ended(how) if how else None, ended_at=how.get("at") if how else None
    )
