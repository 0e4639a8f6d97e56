"""Run a trouble's checks over the facts, and tell the cause from its consequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuctl.cluster.doctor.model import Check, Diagnosis, Facts, Trouble
from gpuctl.core.redact import removed
from gpuctl.domain.findings import Finding, Verdict, group_by_subject


def run_checks(trouble: Trouble, facts: Facts) -> Diagnosis:
    """Run every check, also after one has failed: later failures are evidence, or separate faults."""
    findings = {check.name: group_by_subject(map(_without_secrets, check.run(facts))) for check in trouble.checks}
    return conclude(trouble, findings)


def _without_secrets(finding: Finding) -> Finding:
    """Events and container output are written by others and may contain secrets."""
    return replace(finding, message=removed(finding.message)[0])


def conclude(trouble: Trouble, findings: Mapping[str, Sequence[Finding]]) -> Diagnosis:
    """Choose the cause: the first failed check; failures it does not explain are reported separately."""
    failed = {check.name: check for check in trouble.checks if _with_verdict(findings[check.name], Verdict.FAIL)}
    first = next(iter(failed.values()), None)
    explained = _explained(first, failed) if first else set()

    def of_verdict(names: set[str], verdict: Verdict) -> list[Finding]:
        return [
            finding
            for check in trouble.checks
            if check.name in names
            for finding in _with_verdict(findings[check.name], verdict)
        ]

    every = {check.name for check in trouble.checks}
    optional = {check.name for check in trouble.checks if check.optional}
    return Diagnosis(
        trouble=trouble.name,
        cause=of_verdict({first.name} if first else set(), Verdict.FAIL),
        evidence=of_verdict(explained, Verdict.FAIL),
        also=of_verdict(set(failed) - explained - ({first.name} if first else set()), Verdict.FAIL),
        warnings=of_verdict(every, Verdict.WARN),
        unknown=of_verdict(every - optional, Verdict.UNKNOWN),
        unavailable=of_verdict(optional, Verdict.UNKNOWN),
        checked=[check.name for check in trouble.checks if findings[check.name]],
        skipped=[check.name for check in trouble.checks if not findings[check.name]],
    )


def _explained(first: Check, failed: Mapping[str, Check]) -> set[str]:
    """Failures that follow from the first one, directly or indirectly."""
    names: set[str] = set()
    open_ = [first]
    while open_:
        for name in open_.pop().explains:
            if name in failed and name not in names and name != first.name:
                names.add(name)
                open_.append(failed[name])
    return names


def _with_verdict(findings: Sequence[Finding], verdict: Verdict) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is verdict]
