"""Text of gres.conf and cgroup.conf: read the parts that gpuctl sets, and replace those, keeping every other byte.

A part is "gpu" (the lines about GPUs, and AutoDetect), or a field of cgroup.conf with its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..model import Refused, Unreadable

GPU = "gpu"
FIELDS = ("ConstrainDevices", "ConstrainCores", "ConstrainRAMSpace", "ConstrainSwapSpace")
CREATED = "# Created by gpuctl.\n"  # first line of a file that did not exist
_PAIR = re.compile(r'([A-Za-z]\w*)\s*[-+*/]?=\s*("[^"]*"|[^\s"]*)')
_COMMENT = re.compile(r"(?<!\\)#.*")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")  # Slurm ends lines at no other character
_BY_NAME = {name.lower(): name for name in FIELDS}


class Line(NamedTuple):
    """One line with its continuations; `pairs`: lower-case names and values, empty for a comment."""

    text: str
    pairs: Mapping[str, str]
    part: str


def part_texts(text: str, where: str) -> dict[str, str]:
    """Each part's lines, with the comments between them; `Refused` if they cannot be changed as one."""
    lines = _lines(text, where)
    return {
        part: "".join(line.text for line in lines[first:end]) for part, (first, end) in _spans(lines, where).items()
    }


def values(text: str, where: str) -> dict[str, str]:
    """Values of the fields of cgroup.conf, lower case; the last line of a field is in force."""
    return {
        line.part: line.pairs[line.part.lower()].strip('"').lower()
        for line in _lines(text, where)
        if line.part in FIELDS
    }


def replaced(text: str, changes: Mapping[str, str | None], where: str) -> str:
    """The file with other lines for some parts; None removes a part. New parts come last."""
    lines = _lines(text, where)
    spans = _spans(lines, where)
    starts = {first: part for part, (first, _) in spans.items() if part in changes}
    inside = {number for part, span in spans.items() if part in changes for number in range(*span)}
    parts: list[str] = []
    for number, line in enumerate(lines):
        if number in starts:
            parts.append(changes[starts[number]] or "")
        elif number not in inside:
            parts.append(line.text)
    new = [part for name, part in changes.items() if name not in spans and part]
    # After a last line without its end, a new line would change that one, too.
    whole = [part for part in ([*parts, *new] if not text or text.endswith("\n") else [*new, *parts]) if part]
    after = "".join(part if part.endswith("\n") else f"{part}\n" for part in whole[:-1]) + "".join(whole[-1:])
    due = {**part_texts(text, where), **changes}
    if part_texts(after, where) != {name: part for name, part in due.items() if part}:
        raise Unreadable(f"{where} would not read as meant after the change of {', '.join(changes)}")
    return after


def _lines(text: str, where: str) -> list[Line]:
    lines, pending, began = [], "", 1
    for number, raw in enumerate(_LINES.findall(text), 1):
        began = began if pending else number
        pending += raw
        if _COMMENT.sub("", raw).rstrip("\r\n").endswith("\\"):
            continue
        lines.append(_line(pending, f"{where}:{began}"))
        pending = ""
    return [*lines, _line(pending, f"{where}:{began}")] if pending else lines


def _line(text: str, place: str) -> Line:
    plain = " ".join(_COMMENT.sub("", raw).rstrip().rstrip("\\") for raw in text.split("\n")).strip()
    if plain.lower().split()[:1] == ["include"]:
        raise Refused(f"{place} includes another file: gpuctl changes one whole file only")
    rest = _PAIR.sub("", plain).strip()
    pairs = {match[1].lower(): match[2] for match in _PAIR.finditer(plain)}
    if rest or (plain and not pairs):
        raise Unreadable(f"{place} is not understood: {plain[:80]}")
    if "nodename" in pairs:
        raise Refused(
            f"{place} is for the node {pairs['nodename']}: such a file is shared by nodes, and gpuctl leaves it"
        )
    return Line(text, pairs, _part(pairs, place))


def _part(pairs: Mapping[str, str], place: str) -> str:
    if pairs.get("name", "").strip('"').lower() == GPU or ("autodetect" in pairs and "name" not in pairs):
        return GPU
    names = [_BY_NAME[name] for name in pairs if name in _BY_NAME]
    if names and len(pairs) > 1:
        raise Refused(f"{place} has {names[0]} beside others: write one field a line")
    return names[0] if names else ""


def _spans(lines: Sequence[Line], where: str) -> dict[str, tuple[int, int]]:
    """First line and end of each part."""
    spans: dict[str, tuple[int, int]] = {}
    for part in dict.fromkeys(line.part for line in lines if line.part):
        numbers = [number for number, line in enumerate(lines) if line.part == part]
        between = [line for line in lines[numbers[0] : numbers[-1]] if line.pairs and line.part != part]
        if between or (part != GPU and len(numbers) > 1):
            shown = "of GPUs" if part == GPU else f"of {part}"
            raise Refused(f"{where} has lines {shown} apart from each other: write them one below the other, each once")
        spans[part] = (numbers[0], numbers[-1] + 1)
    return spans
