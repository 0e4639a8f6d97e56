"""Knobs of a profile from a variable of an inventory, for filters in roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from .strict_yaml import Mistake


def by_name(from_variables: Callable[[object, list[Mistake]], list[dict[str, Any]]], value: object) -> dict[str, Any]:
    """Knobs by name; `AnsibleFilterError` with all mistakes at once."""
    mistakes: list[Mistake] = []
    rows = from_variables(value, mistakes)
    if mistakes:
        raise AnsibleFilterError("\n".join(map(str, mistakes)))
    return {row["name"]: {name: row[name] for name in ("value", "why", "source")} for row in rows}
