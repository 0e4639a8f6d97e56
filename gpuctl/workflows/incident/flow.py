"""Make the steps of an incident one after the other; killed anywhere, the record is where it goes on."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

from gpuctl.core import run_history
from gpuctl.core.errors import GpuctlError
from gpuctl.core.redact import removed
from gpuctl.domain.findings import Finding
from gpuctl.incident import decide, record
from gpuctl.incident.model import ACTS, Answer, Entry, Incident, IncidentRequest, State
from gpuctl.workflows.incident.acts import Ask, Question
from gpuctl.workflows.recorded_act import Begin


class NoAnswer(GpuctlError):
    """No node answered: the network of this machine may be lost, so that the step stays open."""


class Workflows(Protocol):
    """Existing workflows, by the step that calls them."""

    def read(self, incident: Incident, entry: Entry) -> Answer:
        """Make a step that changes nothing; it may be repeated."""

    def act(self, incident: Incident, entry: Entry, ask: Ask, begin: Begin) -> Answer:
        """Act with consent; `begin` is called right before it. One that was begun earlier is not repeated."""


class Watch(Protocol):
    """Callbacks of an incident."""

    def save(self, incident: Incident) -> None:
        """Write the record; raises if that is not possible."""

    def begin(self, entry: Entry) -> None:
        """Called before a step is made."""

    def end(self, entry: Entry) -> None:
        """Called once a step has its answer."""

    def ask(self, question: Question) -> str:
        """Ask for consent to an act; return why there is none, "" if there is."""


def new(request: IncidentRequest) -> Incident:
    """An incident that begins now, of a name that no other has; secrets in its title are removed."""
    run = run_history.new(())
    while run.name in record.names():  # names have the second and this process
        time.sleep(0.1)
        run = run_history.new(())
    return Incident(run.name, run.at, run.actor, replace(request, title=_clean(request.title)))


def go_on(incident: Incident, workflows: Workflows, watch: Watch) -> Incident:
    """Make all steps up to the end; returns the closed incident. `NoAnswer` leaves the step open."""
    watch.save(incident)
    while not incident.closed:
        entry = incident.current
        if entry is None:
            planned = decide.next_step(incident)
            if planned is None:
                incident = replace(incident, closed=_now())
                watch.save(incident)
                break
            entry = Entry(len(incident.entries) + 1, planned.step, planned.command, _now(), planned.why)
            incident = incident.with_entry(entry)
            watch.save(incident)
        watch.begin(entry)
        entry = _made(incident, entry, workflows, watch)
        incident = incident.with_entry(entry)
        watch.save(incident)
        watch.end(entry)
    return incident


def _made(incident: Incident, entry: Entry, workflows: Workflows, watch: Watch) -> Entry:
    """A step with its answer without secrets; UNKNOWN if it cannot be made, which does not stop the incident."""

    def begin(run: str) -> None:
        """Write that an act is begun: from then on it is never repeated."""
        nonlocal entry
        begun = replace(entry, begun=run)
        watch.save(incident.with_entry(begun))
        entry = begun

    try:
        is_act = entry.step in ACTS
        answer = workflows.act(incident, entry, watch.ask, begin) if is_act else workflows.read(incident, entry)
    except NoAnswer:
        raise
    except GpuctlError as error:
        details = {"begun": True, "run": entry.begun} if entry.begun else {}
        answer = Answer(State.UNKNOWN, f"{error}; {error.hint}".removesuffix("; "), details=details)
    findings = tuple(_clean_finding(one) for one in answer.findings)
    answer = replace(answer, summary=_clean(answer.summary), findings=findings)
    return replace(entry, answer=answer, finished=_now())


def _clean_finding(one: Finding) -> Finding:
    return replace(one, message=_clean(one.message), hint=_clean(one.hint))


def _clean(text: str) -> str:
    return removed(text)[0]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
