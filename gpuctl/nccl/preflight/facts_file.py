"""File with the facts of a fleet, to judge them again later or elsewhere without querying nodes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically

FORM = 2
SUBJECTS = ("gpu", "rdma", "peer_memory", "limits", "programs", "names", "jobs", "reach")


@dataclass(frozen=True)
class Fleet:
    """Facts of a fleet. `nodes`: node -> result of gpuhost/facts/gather.py, with its `address`, and `rack` if known.

    `unasked`: node -> reason why it has no facts.
    """

    nodes: Mapping[str, Mapping[str, Any]]
    unasked: Mapping[str, str] = field(default_factory=dict)


def save(path: Path, fleet: Fleet) -> None:
    """Write the facts atomically."""
    document = {"form": FORM, "taken": datetime.now(UTC).isoformat(timespec="seconds")}
    text = json.dumps({**document, "nodes": fleet.nodes, "unasked": fleet.unasked}, indent=1)
    try:
        write_atomically(path, text + "\n")
    except OSError as error:
        raise GpuctlError(f"save the facts in {path}", error.strerror or str(error), "name another file") from error


def read(path: Path, subjects: Collection[str] = SUBJECTS, writer: str = "gpuctl nccl preflight") -> Fleet:
    """Read facts written by `save`; `InvalidInput` for any other file. `writer`: the command that saves such facts."""
    doing, hint = f"read the facts in {path}", f"give a file that `{writer} --save FILE` wrote"
    try:
        document: Any = json.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(doing, error.strerror or str(error), hint) from error
    except ValueError as error:
        raise InvalidInput(doing, f"it is not JSON: {error}", hint) from error
    wrong = _wrong(document, subjects)
    if wrong:
        raise InvalidInput(doing, wrong, hint)
    return Fleet(document["nodes"], document["unasked"])


@contextmanager
def understood(source: Path | None, writer: str = "gpuctl nccl preflight") -> Iterator[None]:
    """Report a facts file that was edited by hand into nonsense as invalid input, not as a fault of gpuctl."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if source is None:
            raise
        hint = f"give a file that `{writer} --save FILE` wrote, unchanged"
        raise InvalidInput(f"use the facts in {source}", f"they are not understood: {error!r}", hint) from error


def _wrong(document: Any, subjects: Collection[str]) -> str:
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), dict):
        return "it contains no nodes"
    if document.get("form") != FORM:
        return f"its form is {document.get('form')!r}, this gpuctl reads {FORM}"
    if not isinstance(document.get("unasked"), dict):
        return "its list of nodes without facts is missing"
    for node, facts in document["nodes"].items():
        for subject in subjects:
            section = facts.get(subject) if isinstance(facts, dict) else None
            if not isinstance(section, dict) or not isinstance(section.get("unread"), dict):
                return f"it contains no facts of {node} on {subject}"
    return ""
