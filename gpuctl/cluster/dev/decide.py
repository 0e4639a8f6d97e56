"""Decide when a program is started, ended and restarted. Plain values in, plain values out.

A `folder` below is a number for the pods that share one copy of the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

QUIET_S = 0.2  # an editor writes several files; restart only after this long without a change
# A program whose connection broke is not restarted at once: the pod may be terminating, which the sync notices, too.
SETTLE_S = 2.0


class Phase(StrEnum):
    """State of the program. STOPPING: it was asked to end, or was lost, and is not confirmed gone."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Action(StrEnum):
    """The next action. LEAVE: nothing runs, and nothing will."""

    NOTHING = "nothing"
    START = "start"
    STOP = "stop"
    LEAVE = "leave"


@dataclass(frozen=True)
class Changed:
    """The local folder has a new version; `paths`: what changed."""

    version: int
    paths: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reached:
    """A folder in pods has a version, except for the paths `without`, which it rejected."""

    folder: int
    version: int
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Away:
    """A folder in pods is unreachable."""

    folder: int


class Started:
    """The program runs."""


class Exited:
    """The program has ended, by itself or on request; all of it is gone."""


class Lost:
    """The connection to the program is lost: it may or may not run."""


class Cleared:
    """The lost program is confirmed gone."""


class Leave:
    """The user wants to stop, or nothing can continue."""


class Tick:
    """Time has passed."""


Event = Changed | Reached | Away | Started | Exited | Lost | Cleared | Leave | Tick


@dataclass(frozen=True)
class State:
    """`has`: folder -> its version, 0 while unreachable. `newest`: the local version; `ran`: the version with which the
    program was last started, 0 to start it in any case.

    `owing`: paths changed since then; `lacking`: folder -> paths it rejected. `at`: time of the last change,
    `not_before`: earliest time to start the program. Times are seconds of one clock.
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
    """Initial state, before anything is synced. The program cannot start while a pod rejects the script."""
    return State(dict.fromkeys(range(folders), 0), restarts, owing=frozenset({script}), at=at)


def step(state: State, event: Event, at_s: float) -> tuple[State, Action]:
    """Return the state after an event, and the action to take."""
    return _act(_after(state, event, at_s), at_s)


def _after(state: State, event: Event, at_s: float) -> State:
    changes: dict[str, Any] = {}
    match event:
        case Changed() | Reached() | Away():
            changes = _of_folders(state, event, at_s)
        case Started() if state.phase is Phase.STARTING:
            changes["phase"] = Phase.RUNNING
        case Exited():
            changes = {"phase": Phase.WAITING, "leaving": state.leaving or not state.restarts}
        case Lost():
            changes = {"phase": Phase.STOPPING, "ran": 0, "leaving": state.leaving or not state.restarts}
        case Cleared():
            changes = {"phase": Phase.WAITING, "not_before": at_s + SETTLE_S}
        case Leave():
            changes["leaving"] = True
    return replace(state, **changes)


def _of_folders(state: State, event: Changed | Reached | Away, at_s: float) -> dict[str, Any]:
    match event:
        case Changed(version, paths):
            return {**_newest(state, version, at_s), "at": at_s, "owing": state.owing | paths}
        case Reached(folder, version, without):  # a pod may report the version before the local change is reported
            changes = {"has": {**state.has, folder: version}, "lacking": {**state.lacking, folder: without}}
            return {**_newest(state, version, at_s), **changes}
        case Away(folder):
            return {"has": {**state.has, folder: 0}}


def _newest(state: State, version: int, at_s: float) -> dict[str, Any]:
    return {"newest": version, "at": at_s} if version > state.newest else {}


def _act(state: State, at_s: float) -> tuple[State, Action]:
    if state.leaving:
        return _leave(state)
    if not is_due(state, at_s):
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


def is_due(state: State, at_s: float) -> bool:
    """Return whether all pods have a version the program was not started with, and nothing is changing."""
    if state.newest <= state.ran or at_s < max(state.at + QUIET_S, state.not_before):
        return False
    return not behind(state) and not refused(state)


def behind(state: State) -> list[int]:
    """Folders that do not have the newest version yet."""
    return [folder for folder, version in state.has.items() if version < state.newest]


def refused(state: State) -> dict[int, frozenset[str]]:
    """Changed paths that folders rejected: the program would run with different content there."""
    rejected = {folder: paths & state.owing for folder, paths in state.lacking.items()}
    return {folder: paths for folder, paths in rejected.items() if paths}
