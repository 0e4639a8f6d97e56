"""State machine of one forward: pure functions from state and observation to state and action."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gpuctl.kube.forward.model import Slot

MOST = 30.0  # longest wait between two retries, in seconds
SILENT = 3  # unanswered probes before the forward is restarted
STARTING = 20.0  # seconds for kubectl to start listening
# From kubectl's log (client-go, portforward.go), for refusals by the pod. If the API server or a kubelet refuses a
# connection, kubectl prints REFUSED as well, but mentions no forwarding.
FORWARDING, REFUSED = "an error occurred forwarding", "connect: connection refused"
NOBODY = "nothing listens on that port in the pod"
# After these, older kubectls hang. Other lines concern a single closed connection, or login plugins.
HANGS = (
    FORWARDING,
    "error creating error stream",
    "error creating forwarding stream",
    "error reading from error stream",
)


class State(StrEnum):
    """The status of a forward."""

    WAITING = "waiting for a pod"
    STARTING = "starting"
    UP = "up"
    OPEN = "open, not probed"
    SILENT = "no answer"
    RETRYING = "retrying"


class Action(StrEnum):
    """The next action on the kubectl process."""

    NOTHING = "nothing"
    START = "start"
    STOP = "stop"


@dataclass(frozen=True)
class Observation:
    """The state of the kubectl process: its pod's uid ("" if not running), whether it exited or listens, its message.

    `answers`: the result of the last probe, None if there is no new one. `unprobed`: the port is never probed.
    """

    uid: str = ""
    exited: bool = False
    listens: bool = False
    message: str = ""
    answers: bool | None = None
    unprobed: bool = False


@dataclass(frozen=True)
class Line:
    """A slot and its forward's state; `until` is the time of the next retry, or of giving up on a start."""

    slot: Slot
    state: State = State.STARTING
    failures: int = 0
    unanswered: int = 0
    until: float = 0.0
    why: str = ""
    reconnects: int = 0


def pause(failures: int) -> float:
    """Return the seconds before the next retry: 1, 2, 4, up to 30."""
    return float(min(MOST, 2 ** max(0, failures - 1)))


def moved(line: Line, slot: Slot) -> Line:
    """Return the line for its current slot; a new pod does not wait for the old one's failures."""
    if slot.uid and slot.uid != line.slot.uid:
        return replace(line, slot=slot, state=State.STARTING, failures=0, unanswered=0, why="the pod was replaced")
    return replace(line, slot=slot)


def step(line: Line, observation: Observation, now: float) -> tuple[Line, Action]:
    """Return the line's next state and the action to take."""
    if observation.uid and observation.uid != line.slot.uid:  # its pod is gone, or another one has the slot
        why = "the pod was replaced" if line.slot.uid else "the pod is gone"
        return replace(line, state=State.STARTING, failures=0, unanswered=0, until=now, why=why), Action.STOP
    if not line.slot.uid:
        return replace(line, state=State.WAITING, why="no pod matches"), Action.NOTHING
    if not observation.uid:
        return _begin(line, now)
    if observation.exited:
        return _failed(line, observation.message, now), Action.STOP
    return _running(line, observation, now)


def _begin(line: Line, now: float) -> tuple[Line, Action]:
    if line.state is State.RETRYING and now < line.until:
        return line, Action.NOTHING
    again = line.reconnects + (line.state is State.RETRYING or bool(line.why))
    return replace(line, state=State.STARTING, until=now + STARTING, unanswered=0, reconnects=again), Action.START


def _running(line: Line, observation: Observation, now: float) -> tuple[Line, Action]:
    if not observation.listens:
        if now < line.until:
            return line, Action.NOTHING
        return _failed(line, observation.message or "kubectl does not start listening", now), Action.STOP
    if observation.unprobed:
        return _open(line, observation, now)
    if observation.answers is None:
        return line, Action.NOTHING
    if observation.answers:
        return replace(line, state=State.UP, failures=0, unanswered=0, why=""), Action.NOTHING
    missed = line.unanswered + 1
    silent = replace(
        line, state=State.SILENT, unanswered=missed, why=observation.message or "the pod closes the connection"
    )
    return (_failed(silent, silent.why, now), Action.STOP) if missed >= SILENT else (silent, Action.NOTHING)


def _open(line: Line, observation: Observation, now: float) -> tuple[Line, Action]:
    if any(message in observation.message for message in HANGS):
        return _failed(line, observation.message, now), Action.STOP
    return replace(line, state=State.OPEN, failures=0, why=""), Action.NOTHING


def _failed(line: Line, why: str, now: float) -> Line:
    failures, why = line.failures + 1, NOBODY if FORWARDING in why and REFUSED in why else why
    return replace(line, state=State.RETRYING, failures=failures, unanswered=0, until=now + pause(failures), why=why)
