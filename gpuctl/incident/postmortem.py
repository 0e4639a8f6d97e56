"""The post-mortem of an incident: timeline with every command and number, evidence, cause, unknowns and actions."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.core.redact import removed
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.incident import decide
from gpuctl.incident.cause import cause, unknowns
from gpuctl.incident.model import ACTS, Certainty, Entry, Incident, State
from gpuctl.incident.remedies import remedy
from gpuctl.pages.page import Page, Section, Table

TIMELINE = ("step", "began", "ended", "command", "result", "numbers", "consent")
MOST_NUMBERS = 12  # of a step in the timeline; the findings have all


def page(incident: Incident) -> Page:
    """The post-mortem as a page; secrets in texts are removed, as it is sent to others."""
    title = f"Incident {incident.name}: {_clean(incident.request.title)}"
    end = f"closed {incident.closed}" if incident.closed else "still open"
    return Page(
        title,
        f"Begun {incident.at} by {incident.actor}, {end}.",
        [
            Section("Summary", [_clean(decide.closing_text(incident))]),
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
            one.consent or "-",
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
    return list(map(_clean, [f"{one.certainty}: {one.text}", *(f"Evidence: {proof}" for proof in one.evidence)]))


def _evidence(incident: Incident) -> Iterator[Section]:
    for entry in incident.entries:
        if entry.answer and entry.answer.findings:
            findings = [_clean_finding(one) for one in entry.answer.findings]
            yield Section(f"Evidence of step {entry.number}: {entry.step}", findings=findings)


def _clean_finding(one: Finding) -> Finding:
    return Finding(one.check, one.subject, one.verdict, _clean(one.message), one.numbers, one.hint, one.source)


def _actions(incident: Incident) -> Iterator[str]:
    """Acts with their ends, and what is left to do."""
    chosen = remedy(incident)
    for entry in incident.entries:
        if entry.step in ACTS and entry.answer:
            yield f"{entry.step}: {entry.answer.state}: {entry.answer.summary}"
    result = cause(incident)
    if result.certainty is Certainty.UNKNOWN:
        yield "No remedy: no cause was proven. If the job fails again, start a new incident with its log."
    elif chosen is None:
        suspects = f" Suspects: {', '.join(result.nodes)}." if result.nodes else ""
        yield f"No remedy of the catalogue fits; the hints of the findings are what is left.{suspects}"
    elif not decide.is_cured(incident):
        yield f"{chosen.node} is not proven to be cured: examine it before it takes work again."
    drained = [one for one in incident.entries if one.step == "drain" and one.answer and one.answer.state is State.DONE]
    if drained and not any(
        one.step == "undrain" and one.answer and one.answer.state is State.DONE for one in incident.entries
    ):
        yield f"{drained[-1].options['node']} stays drained; after its repair: `gpuctl nodes undrain`."
