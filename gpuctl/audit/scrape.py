"""Metrics of a repeated audit, as Prometheus scrapes them between two audits and after the last one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuctl.domain import report as forms
from gpuctl.domain.findings import Finding, Verdict, unknown
from gpuctl.domain.report import Report

STALE = "no audit finished for so long that this may be over"


@dataclass(frozen=True)
class Latest:
    """State of a repeated audit. `finished`: Unix time of the last audit that finished well; None before the first.

    `seconds`: how long it took. `audits` and `failures`: number of audits since the start, and of those that raised.
    `stale_after_s`: age at which a result no longer stands for the present.
    """

    stale_after_s: float
    report: Report | None = None
    finished: float | None = None
    seconds: float = 0.0
    audits: int = 0
    failures: int = 0

    def with_report(self, report: Report, now: float, seconds: float) -> Latest:
        return replace(self, report=report, finished=now, seconds=seconds, audits=self.audits + 1)

    def with_failure(self) -> Latest:
        return replace(self, audits=self.audits + 1, failures=self.failures + 1)

    def is_stale(self, now: float) -> bool:
        """True if there is no result, or it is too old; also if the clock was set back behind it."""
        return self.finished is None or not -1 <= now - self.finished <= self.stale_after_s


def metrics(latest: Latest, now: float) -> str:
    """Prometheus text; `now`: Unix time of the scrape. Of a stale result, nothing is OK."""
    stale = latest.is_stale(now)
    rows = [
        ("audit_stale", "1 if the last audit that finished is too old, or there is none.", float(stale)),
        ("audit_stale_after_seconds", "Age at which the findings count as stale.", latest.stale_after_s),
        ("audit_runs_total", "Audits since gpuctl was started.", float(latest.audits)),
        ("audit_failures_total", "Audits that could not be done.", float(latest.failures)),
    ]
    if latest.finished is not None:
        finished = "Unix time at which the last audit finished well."
        rows.append(("audit_last_success_timestamp_seconds", finished, latest.finished))
        rows.append(("audit_duration_seconds", "How long that audit took.", latest.seconds))
    text = "".join(forms.single(name, description, value) for name, description, value in rows)
    if latest.report is None or latest.finished is None:
        return text
    return text + forms.metrics(outdated(latest.report) if stale else latest.report, latest.finished)


def outdated(report: Report) -> Report:
    """Report whose OK findings are UNKNOWN, and whose numbers are gone; faults stay until an audit shows otherwise."""
    targets = {name: list(_outdated(findings)) for name, findings in report.targets.items()}
    return replace(report, targets=targets, code=max(report.exit_code, 1))


def _outdated(findings: Iterable[Finding]) -> Iterable[Finding]:
    yield unknown("audit", "", STALE)
    for finding in findings:
        verdict = Verdict.UNKNOWN if finding.verdict is Verdict.OK else finding.verdict
        yield replace(finding, verdict=verdict, numbers={})
