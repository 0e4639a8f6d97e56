"""Findings: the result of a check on a subject, the helpers that make them, and the exit code that follows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from gpuctl.core.errors import GpuctlError
from gpuctl.core.exit_codes import PROBLEMS
from gpuctl.core.text import named

Number = float | int | str | None
_KIND_AND_NAME = re.compile(r"[A-Z][A-Za-z]+ \S+")
Value = TypeVar("Value")


class Verdict(StrEnum):
    """State of a subject under a check. UNKNOWN is never fine."""

    OK = "OK"
    WARN = "WARN"
    UNKNOWN = "UNKNOWN"
    FAIL = "FAIL"


# A failure outranks what could not be read, which outranks a warning.
SEVERITY = (Verdict.OK, Verdict.WARN, Verdict.UNKNOWN, Verdict.FAIL)


@dataclass(frozen=True)
class Finding:
    """Result of one check on one subject.

    `subject`: a node, a pod, "node-3 and node-7"; "" for everything that was checked. `numbers`: the values that
    decided it, with the unit in each name (`busbw_gbs`); None where one was not measured. `hint`: what to do next.
    `source`: where the limit or rule comes from, if it is published.
    """

    check: str
    subject: str
    verdict: Verdict
    message: str = ""
    numbers: Mapping[str, Number] = field(default_factory=dict, hash=False)
    hint: str = ""
    source: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON form, the same keys for every command (schema: `gpuctl schema findings`)."""
        return {
            "check": self.check,
            "subject": self.subject,
            "verdict": str(self.verdict),
            "message": self.message,
            "numbers": dict(self.numbers),
            "hint": self.hint,
            "source": self.source,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Finding:
        """Inverse of `as_dict`. KeyError or ValueError if it is not one."""
        return cls(
            check=plain["check"],
            subject=plain["subject"],
            verdict=Verdict(plain["verdict"]),
            message=plain["message"],
            numbers=dict(plain.get("numbers") or {}),
            hint=plain.get("hint") or "",
            source=plain.get("source") or "",
        )


def ok(check: str, subject: str, message: str = "") -> Finding:
    return Finding(check, subject, Verdict.OK, message)


def warn(check: str, subject: str, message: str, hint: str = "", **numbers: Number) -> Finding:
    return Finding(check, subject, Verdict.WARN, message, numbers, hint)


def unknown(check: str, subject: str, message: str, hint: str = "", **numbers: Number) -> Finding:
    return Finding(check, subject, Verdict.UNKNOWN, message, numbers, hint)


def unknown_because(check: str, subject: str, error: GpuctlError) -> Finding:
    """UNKNOWN, as what the check needs could not be read."""
    return unknown(check, subject, str(error), error.hint)


def fail(check: str, subject: str, message: str, hint: str = "", **numbers: Number) -> Finding:
    return Finding(check, subject, Verdict.FAIL, message, numbers, hint)


def or_ok(check: str, subject: str, findings: Sequence[Finding], message: str = "") -> list[Finding]:
    """The findings, or one OK if there are none."""
    return list(findings) or [ok(check, subject, message)]


def overall(findings: Iterable[Finding]) -> Verdict:
    """The worst verdict; UNKNOWN if nothing was checked."""
    return max((finding.verdict for finding in findings), key=SEVERITY.index, default=Verdict.UNKNOWN)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted by severity; findings of one severity stay in their order."""
    return sorted(findings, key=lambda finding: -SEVERITY.index(finding.verdict))


def problems(findings: Iterable[Finding], strict: bool = False) -> list[Finding]:
    """Findings that make a command exit 1: FAIL and UNKNOWN, with `strict` WARN too."""
    bad = {Verdict.FAIL, Verdict.UNKNOWN} | ({Verdict.WARN} if strict else set())
    return [finding for finding in findings if finding.verdict in bad]


def exit_code(findings: Iterable[Finding], strict: bool = False) -> int:
    """0 or 1 (PROBLEMS)."""
    return PROBLEMS if problems(findings, strict) else 0


def group_by_subject(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings that differ only in subject into one that names all subjects; numbers of a group are dropped."""
    groups: dict[tuple[str, Verdict, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.check, finding.verdict, finding.message, finding.hint), []).append(finding)
    return [
        group[0] if len(group) == 1 else replace(group[0], subject=_subjects(group), numbers={})
        for group in groups.values()
    ]


def _subjects(group: Sequence[Finding]) -> str:
    """ "Pods a, b" of "Pod a" and "Pod b"; else a plain list."""
    subjects = list(dict.fromkeys(finding.subject for finding in group))
    kinds = {subject.partition(" ")[0] for subject in subjects}
    if len(subjects) == 1 or len(kinds) > 1 or not all(_KIND_AND_NAME.fullmatch(subject) for subject in subjects):
        return named(subjects)
    return f"{kinds.pop()}s {named(subject.partition(' ')[2] for subject in subjects)}"


@dataclass(frozen=True)
class Majority(Generic[Value]):
    """Values of subjects compared with the most common one. Without a majority, `usual` is None and `odd` empty."""

    usual: Value | None
    agree: int  # subjects with the usual value
    known: int  # subjects whose value is known
    odd: Mapping[str, Value]  # subject -> value, of those that differ
    sides: Mapping[Value, Sequence[str]]  # value -> subjects, if no value has a majority


def majority(values: Mapping[str, Value | None]) -> Majority[Value]:
    """Compare subjects with each other; unknown values (None) are ignored."""
    known = {subject: value for subject, value in values.items() if value is not None}
    counts = Counter(known.values()).most_common(2)
    if len(counts) == 2 and counts[0][1] == counts[1][1]:
        sides: dict[Value, list[str]] = {}
        for subject, value in known.items():
            sides.setdefault(value, []).append(subject)
        return Majority(None, counts[0][1], len(known), {}, sides)
    if not counts:
        return Majority(None, 0, 0, {}, {})
    usual, agree = counts[0]
    odd = {subject: value for subject, value in known.items() if value != usual}
    return Majority(usual, agree, len(known), odd, {})
