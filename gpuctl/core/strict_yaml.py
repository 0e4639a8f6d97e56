"""Strict YAML for the package: the collection's reader and schema types, and `load_file`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import (
    EmptyFile,
    Mistake,
    Node,
    did_you_mean,
    from_plain,
    read,
)
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml.schema import (
    NULLS,
    SWITCHES,
    At,
    Choice,
    FieldType,
    Flag,
    ListOf,
    MappingOf,
    Mistakes,
    Parsed,
    Schema,
    Section,
    Text,
    Whole,
    refuse_unknown,
)

from gpuctl.core.errors import InvalidInput

ANY_TEXT = Text(r"[\s\S]*", empty=())

__all__ = [
    "ANY_TEXT",
    "NULLS",
    "SWITCHES",
    "At",
    "Choice",
    "EmptyFile",
    "FieldType",
    "Flag",
    "ListOf",
    "MappingOf",
    "Mistake",
    "Mistakes",
    "Node",
    "Parsed",
    "Schema",
    "Section",
    "Text",
    "Whole",
    "did_you_mean",
    "from_plain",
    "listed",
    "load_file",
    "read",
    "refuse_unknown",
]


def load_file(path: Path, schema: FieldType, doing: str, empty: EmptyFile, hint: str = "") -> Any:
    """Read a file; `InvalidInput` ("cannot `doing`") with every mistake in it.

    `doing` does not name the file: each mistake begins with its path. `empty`: the error for an empty file.
    """
    mistakes = Mistakes()
    node = read(path, mistakes.items, empty)
    value = schema.read(node, At("", mistakes)) if node else None
    if mistakes.items:
        raise InvalidInput(doing, listed(mistakes.by_line(), hint), hint)
    return value


def listed(mistakes: Iterable[Mistake], hint: str) -> str:
    """One mistake a line; a hint that equals the error's own is not repeated."""
    return "\n  ".join(str(one._replace(hint="") if one.hint == hint else one) for one in mistakes)
