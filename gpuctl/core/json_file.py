"""JSON files that users name: read whole up to a limit, and refused with every mistake in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import plural
from gpuctl.engine import printable, typed_json

LARGEST = 2**29  # bytes; the facts of 1,000 nodes take 60 MiB
MOST_MISTAKES = 10  # that are listed
T = TypeVar("T")


def read_text(path: Path, doing: str, hint: str) -> str:
    """Text of a file, bytes that are no UTF-8 replaced; `InvalidInput` ("cannot `doing`") if it cannot be read."""
    try:
        with path.open("rb") as file:  # not all at once: devices and pipes have no size
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InvalidInput(doing, error.strerror or str(error), hint) from error
    if len(data) > LARGEST:
        raise InvalidInput(doing, f"it is larger than {LARGEST >> 20} MiB", hint)
    return data.decode(errors="replace")


def load(path: Path, doing: str, hint: str) -> Any:
    """Value of a file; `InvalidInput` if it cannot be read or is no JSON."""
    return parse(read_text(path, doing, hint), doing, hint)


def parse(text: str, doing: str, hint: str, wrong: str = "it is not JSON") -> Any:
    """Value of a text; `InvalidInput`, whose message begins with `wrong`, if it is no JSON."""
    try:
        return typed_json.parse(text)
    except ValueError as error:
        raise InvalidInput(doing, f"{wrong}: {error}", hint) from error


def fitting(value: object, shape: type[T], doing: str, hint: str) -> T:
    """The value as its type, names beyond the declared ones left out; `InvalidInput` if it is of another."""
    try:
        return typed_json.read(value, shape, extra=True)
    except typed_json.Misfit as error:
        raise InvalidInput(doing, str(error), hint) from error


def read_rows(rows: Mapping[str, Any], read: Callable[[str, Any], T], doing: str, hint: str) -> dict[str, T]:
    """Every row as `read` returns it, by its printable name; `InvalidInput` with the mistake of each that misfits."""
    values: dict[str, T] = {}
    mistakes: list[str] = []
    for name, row in rows.items():
        try:
            if not name.strip():
                raise typed_json.Misfit(f"a name is blank: {name!r}")
            values[printable(name)] = read(name, row)
        except typed_json.Misfit as error:
            mistakes.append(str(error))
    if mistakes:
        raise InvalidInput(doing, _listed(mistakes), hint)
    return values


def _listed(mistakes: Sequence[str]) -> str:
    """One mistake a line."""
    more = len(mistakes) - MOST_MISTAKES
    rest = [f"and {plural(more, 'more mistake')}"] if more > 0 else []
    return "\n  ".join([*mistakes[:MOST_MISTAKES], *rest])
