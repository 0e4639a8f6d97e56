"""Statements of IAM policies: decisions on an action by action, resource and conditions, as IAM documents them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

EVERYTHING: dict[str, Any] = {"Effect": "Allow", "Action": ["*"], "Resource": "*"}


def allowed(rows: Iterable[Mapping[str, Any]], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """True if a statement allows an action on a resource. `context`: keys of the request that conditions name."""
    return any(
        _any(row["Action"], action) and _any(row["Resource"], resource) and _holds(row.get("Condition") or {}, context)
        for row in rows
    )


def names_action(rows: Iterable[Mapping[str, Any]], action: str) -> bool:
    """True if a statement allows an action for some resource."""
    return any(_any(row["Action"], action) for row in rows)


def _any(patterns: str | Sequence[str], value: str) -> bool:
    return any(fnmatchcase(value, one) for one in _listed(patterns))


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    """All operators and keys hold; of the values of a key, one must."""
    return all(
        _operator(operator, _listed(values), context.get(key))
        for operator, keys in condition.items()
        for key, values in keys.items()
    )


def _operator(operator: str, values: Sequence[str], value: str | None) -> bool:
    if operator == "Null":
        return (value is None) is (str(values[0]).lower() == "true")
    if value is None:
        return False
    return {
        "StringEquals": value in values,
        "ArnLike": _any(list(values), value),
    }[operator]


def simulated(
    rows: Sequence[Mapping[str, Any]], denied: Iterable[str], query: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Action, resource and decision of each row that SimulatePrincipalPolicy answers."""
    refused = set(denied)
    resources = [value for key, value in query.items() if key.startswith("ResourceArns.member.")] or ["*"]
    context = {
        value: query[key.replace("ContextKeyName", "ContextKeyValues.member.1")]
        for key, value in query.items()
        if key.endswith(".ContextKeyName")
    }
    for action in (value for key, value in query.items() if key.startswith("ActionNames.member.")):
        for resource in resources:
            if action in refused:
                yield action, resource, "explicitDeny"
            else:
                yield action, resource, "allowed" if allowed(rows, action, resource, context) else "implicitDeny"
