"""Read a tools file: all mistakes at once, each with its line; a version stays text, so that 1.10 is not 1.1."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Any

from gpuctl.core.strict_yaml import (
    ANY_TEXT,
    SWITCHES,
    At,
    EmptyFile,
    FieldType,
    Flag,
    ListOf,
    MappingOf,
    Node,
    Parsed,
    Schema,
    Section,
    Text,
    did_you_mean,
    load_file,
)

SYSTEMS = tuple(f"{system}/{arch}" for system in ("linux", "darwin") for arch in ("amd64", "arm64"))
EMPTY = EmptyFile("tools file", "add rows that start with `- name:`, or remove the file")
PLACEHOLDERS = ("version", "os", "arch")  # allowed in braces


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; `InvalidInput` lists every mistake."""
    rows: list[dict[str, Any]] = load_file(
        path, _Rows(), "use the tools file", EMPTY, "docs/workstation.md has an example"
    )
    return rows


class _Rows:
    """A list of rows; a mistake names its row by tool, or by number if the tool has no name."""

    def read(self, node: Node, at: At) -> list[dict[str, Any]]:
        if not isinstance(node.value, list):
            at.refuse(node, "is not a list of rows, each of which starts with `- name:`")
            return []
        return [ROW.read(item, At("", at.mistakes, _label(item, number))) for number, item in enumerate(node.value, 1)]

    def schema(self) -> Schema:
        return {"type": "array", "items": ROW.schema()}


def _label(node: Node, number: int) -> str:
    name = node.value["name"].value if isinstance(node.value, dict) and "name" in node.value else ""
    return f"row {name if name and isinstance(name, str) else number}:"


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


def _template(text: str) -> str:
    try:
        names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise ValueError(f"has unmatched braces: {error}") from error
    for name in names:
        if name not in PLACEHOLDERS:
            raise ValueError(f"has the unknown placeholder {{{name}}}; {did_you_mean(name, PLACEHOLDERS)}")
    return text


def _sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError(f"is {text!r}: a sha256 has 64 hexadecimal digits")
    return text.lower()


def _free(value: FieldType) -> MappingOf:
    return MappingOf(ANY_TEXT, value, may_be_empty=True)


_FILLED = Text(r"[\s\S]+", empty=("",))
_SWITCH = Flag(SWITCHES, any_case=True)
_PIN = Parsed(_sha256, "a sha256")
_TEMPLATE = Parsed(_template)
_NAME = Text(r"[a-z0-9][a-z0-9._-]*", "a name of a-z, 0-9, . _ and - that starts with a letter or digit", empty=())
# One part of a path, so that it cannot lead out of its folder.
_FILE = Text(r"[A-Za-z0-9][\w.+~-]*", "the name of a file or folder: letters, digits, . _ + ~ and - only", empty=())
_RELEASE: Mapping[str, FieldType] = {
    "version": _FILE,
    "url": _TEMPLATE,
    "os": Section(dict.fromkeys(("linux", "darwin"), ANY_TEXT)),
    "arch": Section(dict.fromkeys(("amd64", "arm64"), ANY_TEXT)),
    "member": _TEMPLATE,
    "checksums": _TEMPLATE,
    "pins": Section(dict.fromkeys(SYSTEMS, _PIN)),
}
_PIP: Mapping[str, FieldType] = {
    "package": _FILLED,
    "version": _FILE,
    "hashes": _free(ListOf(_PIN, "sha256 sums", may_be_empty=True)),
}
_NPM: Mapping[str, FieldType] = {
    "package": _FILLED,
    "version": _FILE,
    "program": _FILLED,
    "integrity": _FILLED,
    "systems": _free(_free(_FILLED)),
}
ROW = Section(
    {
        "name": _NAME,
        "why": _FILLED,
        "source": _FILLED,
        "required": _SWITCH,
        "optional": _SWITCH,
        "program": _FILE,
        "minimal": ANY_TEXT,
        "version_arguments": ListOf(ANY_TEXT, "arguments", may_be_empty=True),
        "version_pattern": Parsed(_expression),
        "packages": Section(dict.fromkeys(("debian", "redhat", "brew"), _FILLED)),
        "release": Section(_RELEASE, ("version", "url", "pins")),
        "pip": Section(_PIP),
        "npm": Section(_NPM),
        "this": _SWITCH,
        "by_hand": ANY_TEXT,
    },
    ("name", "why", "source"),
)
