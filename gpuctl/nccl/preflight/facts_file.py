"""File with the facts of a fleet, to judge them again later or elsewhere without querying nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from gpuctl.core import json_file
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.engine import answers, printable, typed_json

FORM = 2


class _Document(TypedDict):
    unasked: dict[str, str]


class _NamedNode(TypedDict):
    address: str


class _Node(_NamedNode, total=False):
    """What a node has besides the facts that it answered."""

    rack: str


@dataclass(frozen=True)
class Fleet:
    """Facts of a fleet. `nodes`: node -> result of gpuhost/facts/gather.py, with its `address`, and `rack` if known.

    `unasked`: node -> reason why it has no facts.
    """

    nodes: Mapping[str, Mapping[str, Any]]
    unasked: Mapping[str, str] = field(default_factory=dict)


def save(path: Path, fleet: Fleet, more: Mapping[str, Any] | None = None) -> None:
    """Write the facts atomically. `more`: what else stands in the file; `read` does not return it."""
    document = {"form": FORM, "taken": datetime.now(UTC).isoformat(timespec="seconds"), **(more or {})}
    text = json.dumps({**document, "nodes": fleet.nodes, "unasked": fleet.unasked}, indent=1)
    try:
        write_atomically(path, text + "\n")
    except OSError as error:
        raise GpuctlError(f"save the facts in {path}", error.strerror or str(error), "choose another file") from error


def read(path: Path, subjects: str = "nccl", writer: str = "gpuctl nccl preflight") -> Fleet:
    """Read facts written by `save`; `InvalidInput` for any other file, with the first mistake of each node.

    `subjects`: name in the table of `answers.recorded`. `writer`: the command that saves such facts.
    """
    doing, hint = f"read the facts in {path}", f"pass a file that `{writer} --save FILE` of this version wrote"
    document: Any = json_file.load(path, doing, hint)
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), dict):
        raise InvalidInput(doing, "it contains no nodes", hint)
    if document.get("form") != FORM:
        raise InvalidInput(doing, f"its form is {document.get('form')!r}, this gpuctl reads {FORM}", hint)
    unasked = json_file.fitting(document, _Document, doing, hint)["unasked"]
    nodes = json_file.read_rows(document["nodes"], partial(_node, subjects), doing, hint)
    return Fleet(nodes, {printable(node): printable(reason) for node, reason in unasked.items()})


def _node(subjects: str, name: str, row: object) -> dict[str, Any]:
    place = f"nodes.{name}"
    own = typed_json.read(row, _Node, place, extra=True)
    facts = {key: value for key, value in row.items() if key not in own} if isinstance(row, dict) else row
    return {**answers.recorded(facts, subjects, place=place), **own}
