"""Helpers of rules on nodes: read facts with their reasons, and compare nodes with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, Verdict, majority

Facts = Mapping[str, Any]
Fleet = Mapping[str, Facts]  # node -> result of gpuhost/facts/gather.py
Read = Callable[[Facts], Any]
MOST = 4  # names listed in a message
ABSENT = "not in the output"  # reason: an output that is a part, or was asked for other values


def why(facts: Facts, subject: str, *names: str) -> str:
    """Reason why a value is missing, as recorded by the probe."""
    unread: Mapping[str, str] = facts.get(subject, {}).get("unread", {})
    return next((unread[name] for name in (*names, "*") if name in unread), "no reason was given")


def get(facts: Facts, subject: str, name: str) -> Any:
    """Value of a fact; None if it was not read."""
    return facts.get(subject, {}).get(name)


def unread(check: str, node: str, what: str, reason: str, hint: str = "") -> Finding:
    return Finding(check, node, Verdict.UNKNOWN, f"{what} unknown: {reason}", hint=hint)


def parts_unread(check: str, node: str, facts: Facts, subject: str) -> list[Finding]:
    """UNKNOWN for each entry of a subject's `unread`: name of a part -> reason."""
    return [unread(check, node, f"{name} is", why) for name, why in facts.get(subject, {}).get("unread", {}).items()]


def equal(
    check: str, what: str, values: Mapping[str, Any], hint: str, verdict: Verdict = Verdict.FAIL
) -> list[Finding]:
    """Findings for nodes whose value differs from the majority. `what` is a template: "{} GPUs". None is ignored.

    Without a majority (one node against one), both sides are named and neither is called odd.
    """
    compared = majority(values)
    if compared.sides:
        sides = [f"{what.format(value)} on {some(nodes)}" for value, nodes in compared.sides.items()]
        message = f"nodes differ, and no side has the majority: {'; '.join(sides)}"
        return [
            Finding(check, " and ".join(nodes[0] for nodes in compared.sides.values()), verdict, message, hint=hint)
        ]
    return [
        Finding(
            check,
            node,
            verdict,
            f"{what.format(value)}, {compared.agree} of {compared.known} nodes have {what.format(compared.usual)}",
            {
                "value": _plain(value),
                "usual": _plain(compared.usual),
                "nodes": compared.known,
                "agree": compared.agree,
            },
            hint,
        )
        for node, value in compared.odd.items()
    ]


def _plain(value: Any) -> float | int | str | None:
    return value if isinstance(value, (int, float, str)) else str(value)


def some(names: Sequence[str]) -> str:
    """Join the first names."""
    return named(names, MOST)


def usual(values: Mapping[str, Any]) -> Any:
    """Most common known value; None if no value is known."""
    known = Counter(value for value in values.values() if value is not None)
    return known.most_common(1)[0][0] if known else None
