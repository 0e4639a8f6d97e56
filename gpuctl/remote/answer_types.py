"""Types of what a supervisor in a pod answers; every answer is held against them."""

from __future__ import annotations

from typing import Literal, TypedDict

from gpuctl.engine import bounds


class Refusal(TypedDict):
    """Why an order is refused; see `connection.Refused`."""

    reason: Literal["start", "busy", "none"]
    wrong: str


class Started(TypedDict):
    """A program was started."""

    pid: bounds.Count


class _Exit(TypedDict):
    code: bounds.ExitStatus | None
    signal: bounds.Signal | None
    requested: bool
    left: list[str]


class Exit(_Exit, total=False):
    """See `ProcessExit`; `at`: when it ended."""

    at: bounds.Moment
    unlogged: bounds.Count


class RunRecord(TypedDict):
    """The part of a run's record that is used; another release of gpuctl may have written more."""

    name: str
    token: str
    argv: list[str]
    actor: str
    about: str
    began: bounds.Moment
    running: bool
    exit: Exit | None


class Inspection(TypedDict):
    """Records (RunRecord) and marked processes of a pod: token -> command line."""

    runs: list[object]
    processes: dict[str, str]


class Skipped(TypedDict):
    """Bytes of a log that no longer exist."""

    skipped: bounds.Count


class Swept(TypedDict):
    """Processes that could not be ended."""

    left: list[str]
