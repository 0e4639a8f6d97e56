"""Walks the checks of a trouble over what was read, and concludes: a plain function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuctl.cluster.doctor.model import Check, Diagnosis, Facts, Trouble
from gpuctl.core.redact import removed
from gpuctl.domain.findings import Finding, Verdict, group_by_subject


def walk(trouble: Trouble, facts: Facts) -> Diagnosis:
    """Every check is looked at, also after one has failed: the others are its evidence, or trouble of their own."""
    found = {check.name: group_by_subject(map(_without_secrets, check.look(facts))) for check in trouble.checks}
    return conclude(trouble, found)


def _without_secrets(found: Finding) -> Finding:
    """Events, and what containers leave when they end, are others' words."""
    return replace(found, message=removed(found.message)[0])


def conclude(trouble: Trouble, found: Mapping[str, Sequence[Finding]]) -> Diagnosis:
    """The cause is the first check that failed; what it does not explain is told besides."""
    failed = {check.name: check for check in trouble.checks if _those(found[check.name], Verdict.FAIL)}
    first = next(iter(failed.values()), None)
    explained = _explained(first, failed) if first else set()

    def of(names: set[str], verdict: Verdict) -> list[Finding]:
        return [each for check in trouble.checks if check.name in names for each in _those(found[check.name], verdict)]

    every = {check.name for check in trouble.checks}
    aside = {check.name for check in trouble.checks if check.aside}
    return Diagnosis(
        trouble=trouble.name,
        cause=of({first.name} if first else set(), Verdict.FAIL),
        evidence=of(explained, Verdict.FAIL),
        also=of(set(failed) - explained - ({first.name} if first else set()), Verdict.FAIL),
        warnings=of(every, Verdict.WARN),
        unknown=of(every - aside, Verdict.UNKNOWN),
        aside=of(aside, Verdict.UNKNOWN),
        looked=[check.name for check in trouble.checks if found[check.name]],
        passed_over=[check.name for check in trouble.checks if not found[check.name]],
    )


def _explained(first: Check, failed: Mapping[str, Check]) -> set[str]:
    """What follows from the first, and from what follows from it."""
    found: set[str] = set()
    open_ = [first]
    while open_:
        for name in open_.pop().explains:
            if name in failed and name not in found and name != first.name:
                found.add(name)
                open_.append(failed[name])
    return found


def _those(found: Sequence[Finding], verdict: Verdict) -> list[Finding]:
    return [each for each in found if each.verdict is verdict]
