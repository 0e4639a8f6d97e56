"""A command's report: its findings by target, as JSON, JUnit XML and Prometheus text. Plain functions, no I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as Xml  # only written, never parsed

from gpuctl.domain.findings import SEVERITY, Finding, Verdict, exit_code, overall

SCHEMA = "gpuctl.findings/1"
_FINDING = {
    "target": {"type": "string", "description": "What was checked: an inventory, an environment, a log file."},
    "check": {"type": "string", "description": "The check's name, stable between versions."},
    "subject": {"type": "string", "description": "The host, pod, node pair or size; empty for the whole target."},
    "verdict": {"enum": [str(verdict) for verdict in Verdict]},
    "message": {"type": "string"},
    "numbers": {
        "type": "object",
        "description": "Values that decided the verdict, with the unit in each name; null if one was not measured.",
        "additionalProperties": {"type": ["number", "string", "null"]},
    },
    "hint": {"type": "string", "description": "What to do next; may be empty."},
    "source": {"type": "string", "description": "Where the limit or rule is published; may be empty."},
}
JSON_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": SCHEMA,
    "title": "Findings of a gpuctl command (--output json, yaml)",
    "type": "object",
    "required": ["schema", "command", "verdict", "exit_code", "findings"],
    "properties": {
        "schema": {"const": SCHEMA},
        "command": {"type": "string", "description": "The command without its options, such as `nccl judge`."},
        "verdict": {"enum": [str(verdict) for verdict in Verdict], "description": "The worst of all findings."},
        "exit_code": {"type": "integer", "minimum": 0, "maximum": 130},
        "findings": {
            "type": "array",
            "items": {"type": "object", "required": [*_FINDING], "properties": _FINDING, "additionalProperties": False},
        },
    },
    "additionalProperties": {"description": "Details that only this command reports."},
}


@dataclass(frozen=True)
class Report:
    """Findings of one command, by target, with whatever else the command measured in `details` (plain JSON values).

    `seconds`: how long the command took; None if it judged what was recorded earlier. `code`: the exit code, if it
    depends on more than the findings.
    """

    command: str
    targets: Mapping[str, Sequence[Finding]]
    details: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    seconds: float | None = None
    code: int | None = None

    @property
    def findings(self) -> list[Finding]:
        return [finding for findings in self.targets.values() for finding in findings]

    @property
    def exit_code(self) -> int:
        return exit_code(self.findings, self.strict) if self.code is None else self.code


def as_dict(report: Report) -> dict[str, Any]:
    """The documented JSON form (`JSON_SCHEMA`)."""
    flat = [{"target": name, **finding.as_dict()} for name, findings in report.targets.items() for finding in findings]
    head = {"schema": SCHEMA, "command": report.command, "verdict": str(overall(report.findings))}
    return {**head, "exit_code": report.exit_code, **report.details, "findings": flat}


# ---- JUnit -----------------------------------------------------------------------------------------------------------


def junit(report: Report) -> str:
    """JUnit XML as GitLab and Jenkins read it: a suite per target, a test case per check and subject.

    FAIL is a failure, UNKNOWN an error; WARN is a failure with `strict`, else it passes with the message in its output.
    The time is the whole command's: a suite has one only if it is the only suite, so that sums over suites are right.
    """
    root = Xml.Element("testsuites", name=f"gpuctl {report.command}")
    for target, findings in report.targets.items():
        suite = Xml.SubElement(root, "testsuite", name=_xml(target or report.command))
        cases = [_case(suite, report, finding) for finding in findings]
        _count(suite, cases, report.seconds if len(report.targets) == 1 else None)
    _count(root, root.findall(".//testcase"), report.seconds)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _case(suite: Xml.Element, report: Report, finding: Finding) -> Xml.Element:
    # Jenkins takes what precedes the last dot for the package, so that the check itself must have none.
    group = f"gpuctl.{report.command.replace(' ', '.')}.{finding.check.replace('.', '_')}"
    case = Xml.SubElement(suite, "testcase", classname=_xml(group), name=_xml(finding.subject or finding.check))
    text = "\n".join(part for part in (finding.message, finding.hint and f"hint: {finding.hint}") if part)
    tag = {Verdict.FAIL: "failure", Verdict.UNKNOWN: "error"}.get(finding.verdict)
    if finding.verdict is Verdict.WARN and report.strict:
        tag = "failure"
    if tag:
        Xml.SubElement(case, tag, message=_xml(finding.message), type=str(finding.verdict)).text = _xml(text)
    elif text:
        Xml.SubElement(case, "system-out").text = _xml(f"{finding.verdict}: {text}")
    return case


def _count(element: Xml.Element, cases: Sequence[Xml.Element], seconds: float | None) -> None:
    element.set("tests", str(len(cases)))
    element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    element.set("errors", str(sum(case.find("error") is not None for case in cases)))
    if seconds is not None:
        element.set("time", f"{seconds:.3f}")


def _xml(text: str) -> str:
    """Replace the characters that XML 1.0 cannot represent."""
    return re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


# ---- Prometheus ------------------------------------------------------------------------------------------------------


def metrics(report: Report, now: float) -> str:
    """Prometheus text exposition format 0.0.4, as node-exporter's textfile collector reads it; `now`: Unix seconds.

    Of several findings with the same check and subject, the worst counts. Values that are not numbers are omitted.
    Each series names its target: the collector rejects files of two runs if both contain a series of the same labels.
    """
    worst: dict[tuple[str, str, str], Finding] = {}
    for target, findings in report.targets.items():
        for finding in sorted(findings, key=lambda finding: SEVERITY.index(finding.verdict)):
            worst[target, finding.check, finding.subject] = finding
    command = {"command": report.command}
    labelled = [
        ({**command, "target": target, "check": check, "subject": subject}, finding)
        for (target, check, subject), finding in worst.items()
    ]
    by_target = [{**command, "target": target} for target in report.targets or ("",)]
    counts = [
        ({**labels, "verdict": verdict.lower()}, sum(finding.verdict is verdict for finding in findings))
        for labels, findings in zip(by_target, report.targets.values() or ((),), strict=True)
        for verdict in SEVERITY
    ]
    values = [
        ({**labels, "value": name}, number)
        for labels, finding in labelled
        for name, number in finding.numbers.items()
        if isinstance(number, (int, float)) and not isinstance(number, bool)
    ]
    families = [
        _family(
            "check_severity",
            "Severity of a check: 0 OK, 1 WARN, 2 UNKNOWN, 3 FAIL.",
            ((labels, SEVERITY.index(finding.verdict)) for labels, finding in labelled),
        ),
        _family("check_value", "Value that decided a check; the label value names it, with its unit.", values),
        _family("findings", "Findings of the last run, by verdict.", counts),
        _family(
            "last_run_exit_code", "Exit code of the last run.", [(labels, report.exit_code) for labels in by_target]
        ),
        _family(
            "last_run_timestamp_seconds",
            "Unix time at which the last run ended.",
            [(labels, now) for labels in by_target],
        ),
    ]
    return "".join(families)


def single(name: str, description: str, value: float) -> str:
    """A metric without labels, in the same text format."""
    kind = "counter" if name.endswith("_total") else "gauge"
    head = f"# HELP gpuctl_{name} {description}\n# TYPE gpuctl_{name} {kind}\n"
    return f"{head}gpuctl_{name} {_number(value)}\n"


def _family(name: str, description: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    lines = [f"gpuctl_{name}{{{_labels(labels)}}} {_number(value)}\n" for labels, value in samples]
    head = f"# HELP gpuctl_{name} {description}\n# TYPE gpuctl_{name} gauge\n"
    return head + "".join(lines) if lines else ""


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    text = value.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def summary(report: Report) -> str:
    """Counts in one line: "2 FAIL, 1 UNKNOWN, 9 OK"."""
    counts = {verdict: sum(f.verdict is verdict for f in report.findings) for verdict in reversed(SEVERITY)}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "nothing was checked"
