"""Write a drafted cluster file: each value with a comment on its origin, unknown values as comments."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

UNKNOWN = "UNKNOWN"
WIDTH = 118


@dataclass(frozen=True)
class Line:
    """One field by its path; `comments`: the value's origin, or what to fill in.

    Without a `value` it is written as a comment that shows `shown` instead; `needed`: the file cannot be used until
    it is filled in, and `fill` says with what.
    """

    path: str
    value: Any = None
    comments: tuple[str, ...] = ()
    needed: bool = False
    fill: str = ""
    shown: str = UNKNOWN


def known(path: str, value: Any, *comments: str) -> Line:
    """A known value, with its origin."""
    return Line(path, value, comments)


def unknown(path: str, why: str, fill: str, *, needed: bool = False) -> Line:
    """A value that could not be determined; `why`, and what to `fill` in."""
    return Line(path, None, (f"{UNKNOWN}: {why}; {fill}",), needed, fill)


def text(head: Sequence[str], lines: Sequence[Line]) -> str:
    """Return the file's text; the fields of one section have to be adjacent."""
    written = [*(f"# {line}".rstrip() for line in head), *_section(lines, 0)]
    return "\n".join([*written, ""])


def _section(lines: Sequence[Line], depth: int) -> Iterator[str]:
    """Yield the lines of a section with its subsections; a section without known values is one comment."""
    for name, inside in _by_name(lines, depth).items():
        if depth == 0:
            yield ""
        if len(inside) == 1 and inside[0].path.count(".") == depth:
            yield from _field(inside[0], name, depth)
            continue
        section_lines = [line for line in inside if line.path.count(".") == depth]  # comments on the section itself
        for line in section_lines:
            yield from _comments(line.comments, depth)
        below = [line for line in inside if line not in section_lines]
        empty = all(line.value is None for line in below)
        yield f"{_indent(depth)}{'# ' if empty else ''}{name}:"
        yield from _section(below, depth + 1)


def _by_name(lines: Sequence[Line], depth: int) -> dict[str, list[Line]]:
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.path.split(".")[depth], []).append(line)
    return by_name


def _field(line: Line, name: str, depth: int) -> Iterator[str]:
    yield from _comments(line.comments, depth)
    if line.value is None:
        yield f"{_indent(depth)}# {name}: {line.shown}"
    elif isinstance(line.value, Mapping):
        yield f"{_indent(depth)}{name}:"
        yield from (f"{_indent(depth + 1)}{_plain(key)}: {_plain(value)}" for key, value in line.value.items())
    elif isinstance(line.value, (list, tuple)):
        yield f"{_indent(depth)}{name}:"
        yield from (f"{_indent(depth + 1)}- {_plain(item)}" for item in line.value)
    else:
        yield f"{_indent(depth)}{name}: {_plain(line.value)}"


def _comments(comments: Sequence[str], depth: int) -> Iterator[str]:
    """Yield comment lines; text from the cluster cannot break out of them."""
    for comment in comments:
        shown = "".join(letter if letter.isprintable() else " " for letter in comment)  # YAML allows no others
        for part in textwrap.wrap(" ".join(shown.split()), WIDTH - 2 * depth, break_on_hyphens=False):
            yield f"{_indent(depth)}# {part}"


def _indent(depth: int) -> str:
    return "  " * depth


def _plain(value: Any) -> str:
    """Format a scalar, quoted if YAML would read it as another type."""
    written: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return written.removesuffix("\n").removesuffix("\n...")
