"""File with the facts of GPU hosts, to plan again later or elsewhere without asking them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically

FORM = 1


@dataclass(frozen=True)
class HostRecord:
    """Answers of one host. `stack`: facts of `gpuhost/facts/stack.py`; `gpu_stack`: what the site wants, as written.

    `question` and `answer`: the transaction that it resolved, None if it resolved none.
    """

    stack: Mapping[str, Any]
    gpu_stack: Mapping[str, Any]
    question: Mapping[str, Any] | None = None
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Fleet:
    """Hosts with facts, and those without: host -> reason."""

    hosts: Mapping[str, HostRecord]
    unasked: Mapping[str, str] = field(default_factory=dict)


def save(path: Path, fleet: Fleet) -> None:
    """Write the facts atomically."""
    hosts = {
        name: {"stack": row.stack, "gpu_stack": row.gpu_stack, "question": row.question, "answer": row.answer}
        for name, row in fleet.hosts.items()
    }
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"form": FORM, "taken": taken, "gpu_hosts": hosts, "unasked": dict(fleet.unasked)}
    try:
        write_atomically(path, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise GpuctlError(f"save the facts in {path}", error.strerror or str(error), "name another file") from error


def read(path: Path) -> Fleet:
    """Read facts written by `save`; `InvalidInput` for any other file."""
    doing, hint = f"read the facts in {path}", "give a file that `gpuctl gpu-node plan --save FILE` wrote"
    try:
        document: Any = json.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(doing, error.strerror or str(error), hint) from error
    except ValueError as error:  # not UTF-8, or not JSON
        raise InvalidInput(doing, f"it is not JSON: {error}", hint) from error
    wrong = _wrong(document)
    if wrong:
        raise InvalidInput(doing, wrong, hint)
    return Fleet({name: HostRecord(**row) for name, row in document["gpu_hosts"].items()}, document["unasked"])


def _wrong(document: Any) -> str:
    if not isinstance(document, dict) or not isinstance(document.get("gpu_hosts"), dict):
        return "it contains no GPU hosts"
    if document.get("form") != FORM:
        return f"its form is {document.get('form')!r}, this gpuctl reads {FORM}"
    unasked = document.get("unasked")
    if not isinstance(unasked, dict) or not all(isinstance(reason, str) for reason in unasked.values()):
        return "its list of hosts without facts is missing"
    return next(filter(None, (_wrong_entry(name, row) for name, row in document["gpu_hosts"].items())), "")


def _wrong_entry(name: str, row: Any) -> str:
    if not isinstance(row, dict) or row.keys() != {"stack", "gpu_stack", "question", "answer"}:
        return f"its entry of {name} has other keys than stack, gpu_stack, question and answer"
    if not isinstance(row["stack"], dict) or not isinstance(row["gpu_stack"], dict):
        return f"its entry of {name} has no facts or no gpu_stack"
    if not all(row[key] is None or isinstance(row[key], dict) for key in ("question", "answer")):
        return f"its entry of {name} has a transaction that is no object"
    return ""
