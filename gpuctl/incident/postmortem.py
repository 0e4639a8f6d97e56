"""The post-mortem of an incident: timeline with every command and number, evidence, cause, unknowns and actions."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.core.redact import removed
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.incident import acts, decide
from gpuctl.incident.cause import also, cause, unknowns
from gpuctl.incident.model import Certainty, Entry, Incident
from gpuctl.incident.remedies import remedy
from gpuctl.pages.page import Page, Section, Table

TIMELINE = ("step", "began", "ended", "command", "result", "numbers")
MOST_NUMBERS = 12  # of a step in the timeline; the findings have all


def page(incident: Incident) -> Page:
    """The post-mortem as a page; secrets in texts are removed, as it is sent to others."""
    title = f"Incident {incident.name}: {_clean(incident.request.title)}"
    end = f"closed {incident.closed}" if incident.closed else "still open"
    return Page(
        title,
        f"Begun {incident.at} by {incident.actor}, {end}.",
        [
            Section("Summary", list(map(_clean, decide.closing_text(incident).split("\n")))),
            Section("Timeline", tables=[_timeline(incident)]),
            Section("Cause", _cause(incident)),
            *_evidence(incident),
            Section("Unknown", list(map(_clean, unknowns(incident))) or ["Every step has a result, without UNKNOWN."]),
            Section("Actions", list(map(_clean, _actions(incident)))),
        ],
    )


def _clean(text: str) -> str:
    return removed(text)[0]


def _timeline(incident: Incident) -> Table:
    rows = [
        (
            f"{one.number} {one.step}",
            one.began,
            one.finished or "-",
            _clean(one.command),
            _clean(f"{one.answer.state}: {one.answer.summary}") if one.answer else "interrupted",
            _numbers(one),
        )
        for one in incident.entries
    ]
    return Table(TIMELINE, rows, "Steps in their order; times are UTC")


def _numbers(entry: Entry) -> str:
    findings = entry.answer.findings if entry.answer else ()
    numbers = [
        f"{one.subject + ' ' if one.subject else ''}{name}={'not measured' if value is None else value}"
        for one in findings
        if one.verdict is not Verdict.OK or one.check in ("bandwidth", "isolate")
        for name, value in one.numbers.items()
    ]
    more = f" and {len(numbers) - MOST_NUMBERS} more" if len(numbers) > MOST_NUMBERS else ""
    return _clean(", ".join(numbers[:MOST_NUMBERS]) + more) or "-"


def _cause(incident: Incident) -> list[str]:
    one = cause(incident)
    evidence = [f"Evidence: {proof}" for proof in one.evidence]
    text = one.text if one.certainty is Certainty.UNKNOWN else f"{one.certainty}: {one.text}"
    return list(map(_clean, [text, *evidence, *(f"The audit also shows {more}" for more in also(incident))]))


def _evidence(incident: Incident) -> Iterator[Section]:
    for entry in incident.entries:
        if entry.answer and entry.answer.findings:
            findings = [_clean_finding(one) for one in entry.answer.findings]
            yield Section(f"Evidence of step {entry.number}: {entry.step}", findings=findings)


def _clean_finding(one: Finding) -> Finding:
    return Finding(one.check, one.subject, one.verdict, _clean(one.message), one.numbers, one.hint, one.source)


def _actions(incident: Incident) -> Iterator[str]:
    """What was done with consent, and what is left to be done by hand."""
    chosen, result = remedy(incident), cause(incident)
    yield from acts.changes(incident)
    if not acts.has_changed(incident):
        yield "gpuctl changed nothing."
    if result.certainty is Certainty.UNKNOWN:
        yield "No remedy: no cause was proven. If the job fails again, start a new incident with its log."
    elif chosen is None:
        suspects = f" Suspects: {', '.join(result.nodes)}." if result.nodes else ""
        yield f"No remedy of the catalogue fits; the hints of the findings are what is left.{suspects}"
    elif acts.result(incident):
        yield f"{acts.result(incident)}."
    else:
        if acts.is_left(incident):
            yield decide.proposal(chosen)
        yield f"{chosen.node} is not proven to be cured: examine it before it takes work again."
