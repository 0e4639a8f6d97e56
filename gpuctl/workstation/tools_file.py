"""Read a file of rows strictly: every mistake is told with its line, and a version stays the text that was written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import Formatter
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake, Node, did_you_mean, read

from gpuctl.core.errors import InvalidInput

SYSTEMS = tuple(f"{system}/{arch}" for system in ("linux", "darwin") for arch in ("amd64", "arm64"))
_WORDS = ("version", "os", "arch")  # what can stand in braces
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_FILE = re.compile(r"[A-Za-z0-9][\w.+~-]*")  # what becomes one part of a path: it cannot lead elsewhere
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class _Notes:
    """Takes down what is wrong with one row, each with the field that it is about."""

    mistakes: list[Mistake]
    row: str
    field: str = ""

    def inside(self, name: str) -> _Notes:
        return replace(self, field=f"{self.field}.{name}" if self.field else name)

    def tell(self, node: Node, wrong: str, hint: str = "") -> None:
        self.mistakes.append(Mistake(node.where, " ".join(filter(None, [f"{self.row}:", self.field, wrong])), hint))


Reader = Callable[[Node, _Notes], Any]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, none of an empty one; `InvalidInput` with every mistake in it."""
    mistakes: list[Mistake] = []
    node = read(path, mistakes)
    if [mistake.wrong for mistake in mistakes] == ["is empty"]:
        return []
    found = _rows(node, mistakes) if node else []
    if mistakes:
        told = "\n  ".join(map(str, mistakes)).replace('"<unicode string>"', "the file")
        raise InvalidInput(f"use {path}", told, "docs/workstation.md has an example")
    return found


def _rows(node: Node, mistakes: list[Mistake]) -> list[dict[str, Any]]:
    if not isinstance(node.value, list):
        mistakes.append(Mistake(node.where, "is not a list of rows, each of which starts with `- name:`"))
        return []
    return [_row(item, _Notes(mistakes, f"row {number}")) for number, item in enumerate(node.value, 1)]


def _row(node: Node, notes: _Notes) -> dict[str, Any]:
    name = node.value["name"].value if isinstance(node.value, dict) and "name" in node.value else ""
    notes = replace(notes, row=f"row {name}") if name and isinstance(name, str) else notes
    return _fields(node, notes, _ROW, ("name", "why", "source"))


def _fields(node: Node, notes: _Notes, known: Mapping[str, Reader], wanted: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        notes.tell(node, "is not a mapping")
        return {}
    for name in wanted:
        if name not in node.value:
            notes.tell(node, f"has no {name}")
    found = {}
    for name, item in node.value.items():
        if name in known:
            found[name] = known[name](item, notes.inside(name))
        else:
            notes.inside(name).tell(item, "is not known", did_you_mean(name, list(known)))
    return found


def _part(known: Mapping[str, Reader], *wanted: str) -> Reader:
    return lambda node, notes: _fields(node, notes, known, wanted)


def _text(node: Node, notes: _Notes) -> str:
    if isinstance(node.value, str):
        return node.value
    notes.tell(node, "is not text")
    return ""


def _said(node: Node, notes: _Notes) -> str:
    if node.value == "":
        notes.tell(node, "is empty")
    return _text(node, notes)


def _fitting(pattern: re.Pattern[str], wrong: str) -> Reader:
    def reader(node: Node, notes: _Notes) -> str:
        if isinstance(node.value, str) and not pattern.fullmatch(node.value):
            notes.tell(node, f"is {node.value!r}: {wrong}")
        return _text(node, notes)

    return reader


def _expression(node: Node, notes: _Notes) -> str:
    text = _text(node, notes)
    try:
        re.compile(text)
    except re.error as error:
        notes.tell(node, f"is no regular expression: {error}")
    return text


def _template(node: Node, notes: _Notes) -> str:
    text = _text(node, notes)
    try:
        names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        notes.tell(node, f"has braces that do not fit: {error}")
        return text
    for name in names:
        if name not in _WORDS:
            notes.tell(node, f"has the unknown placeholder {{{name}}}", did_you_mean(name, _WORDS))
    return text


def _switch(node: Node, notes: _Notes) -> bool:
    known = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    text = _text(node, notes).lower()
    if text not in known:
        notes.tell(node, "is neither true nor false")
    return known.get(text, False)


def _several(reader: Reader) -> Reader:
    def several(node: Node, notes: _Notes) -> list[Any]:
        if isinstance(node.value, list):
            return [reader(item, notes) for item in node.value]
        notes.tell(node, "is not a list")
        return []

    return several


def _each(reader: Reader) -> Reader:
    """A mapping whose names are free."""

    def each(node: Node, notes: _Notes) -> dict[str, Any]:
        if isinstance(node.value, dict):
            return {name: reader(item, notes.inside(name)) for name, item in node.value.items()}
        notes.tell(node, "is not a mapping")
        return {}

    return each


def _pin(node: Node, notes: _Notes) -> str:
    found: str = _fitting(_SHA256, "a sha256 has 64 hexadecimal digits")(node, notes)
    return found.lower()


_part_of_path = _fitting(_FILE, "it becomes the name of a file or folder: letters, digits, . _ + ~ and - only")
_RELEASE: Mapping[str, Reader] = {
    "version": _part_of_path,
    "url": _template,
    "os": _part(dict.fromkeys(("linux", "darwin"), _text)),
    "arch": _part(dict.fromkeys(("amd64", "arm64"), _text)),
    "member": _template,
    "checksums": _template,
    "pins": _part(dict.fromkeys(SYSTEMS, _pin)),
}
_PIP: Mapping[str, Reader] = {"package": _said, "version": _part_of_path, "hashes": _each(_several(_pin))}
_NPM: Mapping[str, Reader] = {
    "package": _said,
    "version": _part_of_path,
    "program": _said,
    "integrity": _said,
    "systems": _each(_each(_said)),
}
_ROW: Mapping[str, Reader] = {
    "name": _fitting(_NAME, "a name is of a-z, 0-9, . _ and -, and starts with a letter or digit"),
    "why": _said,
    "source": _said,
    "required": _switch,
    "optional": _switch,
    "program": _part_of_path,
    "minimal": _text,
    "version_arguments": _several(_text),
    "version_pattern": _expression,
    "packages": _part(dict.fromkeys(("debian", "redhat", "brew"), _said)),
    "release": _part(_RELEASE, "version", "url", "pins"),
    "pip": _part(_PIP),
    "npm": _part(_NPM),
    "this": _switch,
    "by_hand": _text,
}
