"""Checks: findings of `gpuctl audit`, the worst first, each with its explanation on a key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from gpuctl.cli import audit
from gpuctl.cli import explain as explain_command
from gpuctl.cli.audit import AuditRequest
from gpuctl.cli.dash.model import NEVER, Detail, Line, PanelKey, View, shell_text
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.shared import findings
from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import plural
from gpuctl.domain import report as reports
from gpuctl.domain.findings import Finding, Verdict, worst_first
from gpuctl.domain.report import Report
from gpuctl.engine import printable
from gpuctl.workflows.explain import explain

PAUSE_S = 300.0  # between two audits, as `gpuctl audit --watch`


class ChecksPanel:
    """Findings of an audit; of every check with a verdict other than OK, or with `a` of all."""

    name, title = "checks", "Checks"

    def __init__(self, request: DashRequest) -> None:
        self._dash = request
        self._line = request.command_line("audit")
        if request.context:
            self._line.toggle("--probe")
        elif not request.sources:
            self._line.set("--timeout", f"{request.timeout:g}")
        self._with_ok = False
        self._findings: Sequence[Finding] = ()
        self._shown: dict[str, Finding] = {}
        self._summary, self._read_at = "", ""
        self.keys: Sequence[PanelKey] = (
            PanelKey("e", "explain the check under the cursor", self._explain),
            PanelKey("a", "all findings, or only those that are not OK", self._toggle_ok),
        )

    @property
    def command(self) -> str:
        return str(self._line)

    def _toggle_ok(self, _: str) -> None:
        self._with_ok = not self._with_ok

    def read(self) -> float:
        """One audit."""
        if self._dash.context:
            wrong = "each is audited by a pod, and this screen starts none"
            raise InvalidInput("audit the nodes of a context", wrong, f"`{self.command}` does it")
        request = replace(self._line.request(audit.audit, AuditRequest), quiet=True)
        audit.check(request, "table")
        if request.logs:
            targets = audit.judge_files(request)
            report = Report("audit", targets)
            self._summary = reports.summary(report)
        else:
            report = audit.report_of(request, audit.select(request))
            self._summary = f"{plural(len(report.details['nodes']), 'node')}: {reports.summary(report)}"
        self._findings, self._read_at = worst_first(report.findings), time.strftime("%H:%M:%S")
        return NEVER if request.logs else PAUSE_S

    def view(self) -> View:
        if not self._read_at:
            return View()
        chosen = [one for one in self._findings if self._with_ok or one.verdict is not Verdict.OK]
        lines, self._shown = [], {}
        for text, finding in findings.entries(chosen, most=None):
            subject = f"{finding.verdict} {finding.check} {finding.subject} {finding.message}"
            self._shown[subject] = finding
            lines.append(Line(printable(text), subject, str(finding.verdict)))
        return View(lines or [Line("all checks are OK")], "", [self._summary], self._read_at)

    def detail(self, subject: str) -> Detail | None:
        """Return the finding with its numbers and source, and the explanation of its check."""
        finding = self._shown.get(subject)
        if finding is None:
            return None
        texts = {
            "subject": finding.subject,
            "message": finding.message,
            "hint": finding.hint,
            "source": finding.source,
            **{name: "not measured" if value is None else str(value) for name, value in finding.numbers.items()},
        }
        width = max(map(len, texts)) + 1
        lines = [Line(f"{finding.verdict}  {finding.check}", level=str(finding.verdict))]
        lines += [Line(printable(f"  {label + ':':<{width}} {text}")) for label, text in texts.items() if text]
        return Detail(finding.check, [*lines, Line(""), *_explanation(finding)], self.command)

    def _explain(self, subject: str) -> Detail | None:
        finding = self._shown.get(subject)
        if finding is None:
            return None
        return Detail(f"explain {finding.check}", _explanation(finding), shell_text(_words(finding)))


def _words(finding: Finding) -> list[str]:
    return ["explain", "audit", finding.check]


def _explanation(finding: Finding) -> list[Line]:
    """Text of `gpuctl explain`; its error if it does not know the check."""
    for words in (_words(finding)[1:], [finding.check]):
        try:
            return [Line(text) for text in explain_command.lines(explain(" ".join(words)))]
        except InvalidInput as error:
            reason = str(error)
    return [Line(printable(reason))]
