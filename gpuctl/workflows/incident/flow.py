"""Make the steps of an incident one after the other; killed anywhere, the record is where it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError
from gpuctl.incident import decide
from gpuctl.incident.model import ACTS, Answer, Entry, Incident, IncidentRequest, Planned, State, Step


@dataclass(frozen=True)
class Act:
    """An act that has been read and not made. `text`: what it does; `refusals`: why it must not be made.

    `carry_out`: makes it, with the words that its record in the run history has as its command.
    """

    text: str
    refusals: tuple[str, ...]
    carry_out: Callable[[list[str]], Answer]


class Workflows(Protocol):
    """Existing workflows, by the step that calls them."""

    def read(self, incident: Incident, entry: Entry) -> Answer:
        """Make a step that changes nothing; it may be repeated."""

    def prepare(self, incident: Incident, entry: Entry) -> Act:
        """Read the node or job that an act is about, and what is against the act."""

    def outcome(self, mark: list[str]) -> Answer | None:
        """Outcome of an act that was interrupted, by its record; None if it never began."""


class Watch(Protocol):
    """Callbacks of an incident."""

    def save(self, incident: Incident) -> None:
        """Write the record; raises if that is not possible."""

    def begin(self, entry: Entry) -> None:
        """Called before a step is made."""

    def end(self, entry: Entry) -> None:
        """Called once a step has its answer."""

    def consent(self, entry: Entry, act: Act) -> bool:
        """Ask the user; raises to stop here, so that the question is asked again later."""


def new(request: IncidentRequest) -> Incident:
    """An incident that begins now."""
    run = run_history.new(())
    return Incident(run.name, run.at, run.actor, request)


def go_on(incident: Incident, workflows: Workflows, watch: Watch) -> Incident:
    """Make all steps up to the end; returns the closed incident."""
    watch.save(incident)
    while not incident.closed:
        entry = incident.current
        if entry is None:
            planned = decide.next_step(incident)
            if planned is None:
                incident = replace(incident, closed=_now())
                watch.save(incident)
                break
            entry = _entry(incident, planned)
            incident = incident.with_entry(entry)
            watch.save(incident)
        watch.begin(entry)
        incident = _make(incident, entry, workflows, watch)
        watch.end(incident.entries[-1])
    return incident


def _entry(incident: Incident, planned: Planned) -> Entry:
    number = len(incident.entries) + 1
    return Entry(number, planned.step, planned.command, _now(), planned.options, planned.why)


def _make(incident: Incident, entry: Entry, workflows: Workflows, watch: Watch) -> Incident:
    if entry.step in ACTS:
        entry, answer = _act(incident, entry, workflows, watch)
    else:
        answer = _read(incident, entry, workflows)
    incident = incident.with_entry(replace(entry, answer=answer, finished=_now()))
    watch.save(incident)
    return incident


def _read(incident: Incident, entry: Entry, workflows: Workflows) -> Answer:
    """Answer of a reading; UNKNOWN if it cannot be made, which never stops the incident."""
    try:
        return workflows.read(incident, entry)
    except GpuctlError as error:
        return Answer(State.UNKNOWN, _text(error))


def _act(incident: Incident, entry: Entry, workflows: Workflows, watch: Watch) -> tuple[Entry, Answer]:
    """The act with the consent, and its answer; an act that had begun before an interruption is never repeated."""
    mark = mark_of(incident, entry)
    if entry.consent == "yes" and (before := workflows.outcome(mark)) is not None:
        return entry, before
    try:
        act = workflows.prepare(incident, entry)
    except GpuctlError as error:
        return entry, Answer(State.REFUSED, _text(error))
    if act.refusals:
        return entry, Answer(State.REFUSED, "; ".join(act.refusals))
    if entry.consent != "yes":
        entry = replace(entry, consent="yes" if watch.consent(entry, act) else "no")
        watch.save(incident.with_entry(entry))
    if entry.consent == "no":
        return entry, Answer(State.DECLINED, f"declined: {act.text}")
    try:
        return entry, act.carry_out(mark)
    except GpuctlError as error:  # some of it may have been done
        return entry, workflows.outcome(mark) or Answer(State.REFUSED, _text(error))


def mark_of(incident: Incident, entry: Entry) -> list[str]:
    """Command of an act in the run history, by which it is recognised after an interruption."""
    return ["incident", incident.name, f"step {entry.number}", str(entry.step)]


def outcome(mark: list[str]) -> Answer | None:
    """Outcome of the recorded act with this mark; None without one. Without an exit code its end is unknown."""
    for name in reversed(run_history.names()):
        run = run_history.load(name)
        if list(run.command) == mark:
            rows = list(run.hosts.values())
            text = "; ".join(f"{row.get('host', '')}: {row.get('status', '?')}" for row in rows)
            text = f"run {name} of an earlier attempt: {text}"
            return Answer(_state_of(run.exit_code, rows), text, (), {"run": name})
    return None


def _state_of(code: int | None, rows: list[Mapping[str, Any]]) -> State:
    if code is None or any(row.get("status") in ("unfinished", "unknown") for row in rows):
        return State.UNKNOWN
    return State.DONE if code == 0 else State.FAILED


def _text(error: GpuctlError) -> str:
    return f"{error}; {error.hint}".removesuffix("; ")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def steps_of(request: IncidentRequest) -> list[Planned]:
    """Steps that an incident may make, in their order; nothing is read."""
    return decide.outline(request)


__all__ = ["Act", "Step", "Watch", "Workflows", "go_on", "mark_of", "new", "outcome", "steps_of"]
