"""JSON values with one part damaged, for tests of what reads answers of other machines."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
MISSING = object()
DEEP = "[" * 500 + "]" * 500
NO_NUMBERS = ("NaN", "-Infinity", "1e999", str(10**400))
# As text, as Python's own encoder refuses or changes some of them.
HOSTILE = (
    "null",
    "true",
    "7",
    "-1",
    "1.5",
    '"x"',
    '""',
    '"\\ud800\\u001b[31m"',
    "[]",
    "{}",
    "[null]",
    '{"x": 1}',
    str(2**64 - 1),
    *NO_NUMBERS,
    DEEP,
)
_MARK = "a part that is replaced"


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the place of every part; of a list only its first item's, as the others are alike."""
    yield at
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, (*at, name))
    elif isinstance(value, list) and value:
        yield from paths(value[0], (*at, 0))


def part(value: Any, path: Path) -> Any:
    """The part at a place."""
    for step in path:
        value = value[step]
    return value


def replaced(value: Any, path: Path, text: str) -> str:
    """The value as JSON text, with this text at a place."""
    if not path:
        return text
    damaged = copy.deepcopy(value)
    part(damaged, path[:-1])[path[-1]] = _MARK
    return json.dumps(damaged).replace(json.dumps(_MARK), text)


def without(value: Any, path: Path) -> str:
    """The value as JSON text, without the part at a place."""
    damaged = copy.deepcopy(value)
    del part(damaged, path[:-1])[path[-1]]
    return json.dumps(damaged)
