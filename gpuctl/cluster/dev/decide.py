"""When a program is started, ended and begun anew. Plain values in, plain values out.

`Folder` below: what pods have the code in, by number; pods that share one folder are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

QUIET_S = 0.2  # an editor writes several files; only when nothing has changed for so long is it begun anew
# A program whose connection broke is not begun at once: the pod may be going, which the sync notices, too.
SETTLE_S = 2.0


class Phase(StrEnum):
    """How the program stands. STOPPING: it was told to end, or was lost, and nobody knows yet that it is gone."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Action(StrEnum):
    """What to do now. LEAVE: nothing runs any more, and nothing is to."""

    NOTHING = "nothing"
    START = "start"
    STOP = "stop"
    LEAVE = "leave"


@dataclass(frozen=True)
class Changed:
    """The folder here has a new version; `paths`: what changed."""

    version: int
    paths: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reached:
    """A folder in pods has a version, but for the paths `without`, which it did not take."""

    folder: int
    version: int
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Away:
    """A folder in pods cannot be reached now."""

    folder: int


class Started:
    """The program runs."""


class Ended:
    """The program has ended, by itself or as it was told to; all of it is gone."""


class Lost:
    """Nobody hears the program any more: it may run, or not."""


class Cleared:
    """What was lost is gone for certain."""


class Leave:
    """The user has had enough, or nothing can go on."""


class Tick:
    """Time has passed."""


Event = Changed | Reached | Away | Started | Ended | Lost | Cleared | Leave | Tick


@dataclass(frozen=True)
class State:
    """`has`: folder -> the version that it has, 0 while it is away. `newest`: the version here; `ran`: the one that
    was the newest when the program was started last, 0 where it is to be started anyway.

    `owing`: what changed since then; `lacking`: folder -> paths that it did not take. `at`: when something changed
    last, `not_before`: when the program may be started. Times are in seconds of one clock.
    """

    has: Mapping[int, int]
    restarts: bool = True
    phase: Phase = Phase.WAITING
    newest: int = 1
    ran: int = 0
    owing: frozenset[str] = frozenset()
    lacking: Mapping[int, frozenset[str]] = field(default_factory=dict)
    at: float = float("-inf")
    not_before: float = float("-inf")
    leaving: bool = False


def begin(folders: int, script: str, restarts: bool = True, at: float = float("-inf")) -> State:
    """Before anything is synced. The program cannot be started where a pod does not take it."""
    return State(dict.fromkeys(range(folders), 0), restarts, owing=frozenset({script}), at=at)


def step(state: State, event: Event, now: float) -> tuple[State, Action]:
    """How it stands after this, and what to do."""
    return _act(_after(state, event, now), now)


def _after(state: State, event: Event, now: float) -> State:
    changes: dict[str, Any] = {}
    match event:
        case Changed() | Reached() | Away():
            changes = _of_folders(state, event, now)
        case Started() if state.phase is Phase.STARTING:
            changes["phase"] = Phase.RUNNING
        case Ended():
            changes = {"phase": Phase.WAITING, "leaving": state.leaving or not state.restarts}
        case Lost():
            changes = {"phase": Phase.STOPPING, "ran": 0, "leaving": state.leaving or not state.restarts}
        case Cleared():
            changes = {"phase": Phase.WAITING, "not_before": now + SETTLE_S}
        case Leave():
            changes["leaving"] = True
    return replace(state, **changes)


def _of_folders(state: State, event: Changed | Reached | Away, now: float) -> dict[str, Any]:
    match event:
        case Changed(version, paths):
            return {**_newest(state, version, now), "at": now, "owing": state.owing | paths}
        case Reached(folder, version, without):  # a pod may be faster than the news that something changed here
            own = {"has": {**state.has, folder: version}, "lacking": {**state.lacking, folder: without}}
            return {**_newest(state, version, now), **own}
        case Away(folder):
            return {"has": {**state.has, folder: 0}}


def _newest(state: State, version: int, now: float) -> dict[str, Any]:
    return {"newest": version, "at": now} if version > state.newest else {}


def _act(state: State, now: float) -> tuple[State, Action]:
    if state.leaving:
        return _leave(state)
    if not is_due(state, now):
        return state, Action.NOTHING
    if state.phase is Phase.WAITING:
        return replace(state, phase=Phase.STARTING, ran=state.newest, owing=frozenset()), Action.START
    if state.phase is Phase.RUNNING and state.restarts:
        return replace(state, phase=Phase.STOPPING), Action.STOP
    return state, Action.NOTHING


def _leave(state: State) -> tuple[State, Action]:
    if state.phase is Phase.WAITING:
        return state, Action.LEAVE
    if state.phase is Phase.STOPPING:
        return state, Action.NOTHING
    return replace(state, phase=Phase.STOPPING), Action.STOP


def is_due(state: State, now: float) -> bool:
    """Whether all pods have something that the program was not started with, and nothing is changing."""
    if state.newest <= state.ran or now < max(state.at + QUIET_S, state.not_before):
        return False
    return not behind(state) and not refused(state)


def behind(state: State) -> list[int]:
    """The folders that do not have the newest version yet."""
    return [folder for folder, version in state.has.items() if version < state.newest]


def refused(state: State) -> dict[int, frozenset[str]]:
    """What changed and was not taken, by folder: the program would run with something else there."""
    found = {folder: paths & state.owing for folder, paths in state.lacking.items()}
    return {folder: paths for folder, paths in found.items() if paths}
