"""What all rules of the preflight share: reading facts with their reasons, and comparing nodes with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuctl.core.text import named
from gpuctl.domain.findings import Verdict
from gpuctl.nccl.model import Finding

Facts = Mapping[str, Any]
Fleet = Mapping[str, Facts]  # node -> what gpuhost/facts/gather.py gives
Read = Callable[[Facts], Any]
MOST = 4  # names that are told of many


def why(facts: Facts, subject: str, *names: str) -> str:
    """Why a value is missing, in the probe's words."""
    unread: Mapping[str, str] = facts.get(subject, {}).get("unread", {})
    return next((unread[name] for name in (*names, "*") if name in unread), "it was not told")


def get(facts: Facts, subject: str, name: str) -> Any:
    """A value, None where it was not read."""
    return facts.get(subject, {}).get(name)


def unknown(rule: str, node: str, what: str, reason: str, advice: str = "") -> Finding:
    return Finding(rule, node, Verdict.UNKNOWN, f"{what} unknown: {reason}", advice=advice)


def fail(rule: str, node: str, says: str, advice: str, **numbers: float | int | str | None) -> Finding:
    return Finding(rule, node, Verdict.FAIL, says, numbers, advice)


def warn(rule: str, node: str, says: str, advice: str, **numbers: float | int | str | None) -> Finding:
    return Finding(rule, node, Verdict.WARN, says, numbers, advice)


def ok(rule: str, says: str) -> Finding:
    return Finding(rule, "", Verdict.OK, says)


def or_ok(rule: str, found: list[Finding], says: str) -> list[Finding]:
    """What was found, or that all is well."""
    return found or [ok(rule, says)]


def equal(
    rule: str, what: str, values: Mapping[str, Any], advice: str, verdict: Verdict = Verdict.FAIL
) -> list[Finding]:
    """Nodes whose value is not that of the majority. `what` has a place for the value: "{} GPUs". None is left out.

    Where there is no majority (two nodes of two), nobody is called the odd one: both sides are named.
    """
    known = {node: value for node, value in values.items() if value is not None}
    counts = Counter(known.values())
    if len(counts) < 2:
        return []
    (usual, most), (_, second) = counts.most_common(2)
    if most == second:
        sides = [f"{what.format(value)} on {some(_with(known, value))}" for value in counts]
        says = f"nodes differ, and no side has the majority: {'; '.join(sides)}"
        return [Finding(rule, " and ".join(_first(known, value) for value in counts), verdict, says, {}, advice)]
    return [
        Finding(
            rule,
            node,
            verdict,
            f"{what.format(value)}, {most} of {len(known)} nodes have {what.format(usual)}",
            {"value": _plain(value), "usual": _plain(usual), "nodes": len(known), "agree": most},
            advice,
        )
        for node, value in known.items()
        if value != usual
    ]


def _plain(value: Any) -> float | int | str | None:
    return value if isinstance(value, (int, float, str)) else str(value)


def _first(known: Mapping[str, Any], value: Any) -> str:
    return next(node for node, own in known.items() if own == value)


def _with(known: Mapping[str, Any], value: Any) -> list[str]:
    return [node for node, own in known.items() if own == value]


def some(names: Sequence[str]) -> str:
    """The first few of them."""
    return named(names, MOST)


def usual(values: Mapping[str, Any]) -> Any:
    """The most common value that is known; None where none is."""
    known = Counter(value for value in values.values() if value is not None)
    return known.most_common(1)[0][0] if known else None
