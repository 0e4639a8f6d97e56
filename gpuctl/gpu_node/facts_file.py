"""File with the facts of GPU hosts, to plan again later or elsewhere without asking them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from gpuctl.core import json_file
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.engine import answers, fact_types, printable, typed_json

FORM = 1


class _Document(TypedDict):
    unasked: dict[str, str]


class _Entry(TypedDict):
    """See HostRecord."""

    stack: object
    gpu_stack: dict[str, object]
    question: dict[str, object] | None
    answer: object


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
        raise GpuctlError(f"save the facts in {path}", error.strerror or str(error), "choose another file") from error


def read(path: Path) -> Fleet:
    """Read facts written by `save`; `InvalidInput` for any other file, with the first mistake of each host."""
    doing = f"read the facts in {path}"
    hint = "pass a file that `gpuctl gpu-node plan --save FILE` of this version wrote"
    document: Any = json_file.load(path, doing, hint)
    if not isinstance(document, dict) or not isinstance(document.get("gpu_hosts"), dict):
        raise InvalidInput(doing, "it contains no GPU hosts", hint)
    if document.get("form") != FORM:
        raise InvalidInput(doing, f"its form is {document.get('form')!r}, this gpuctl reads {FORM}", hint)
    unasked = json_file.fitting(document, _Document, doing, hint)["unasked"]
    hosts = json_file.read_rows(document["gpu_hosts"], _record, doing, hint)
    return Fleet(hosts, {printable(host): printable(reason) for host, reason in unasked.items()})


def _record(name: str, row: object) -> HostRecord:
    place = f"gpu_hosts.{name}"
    entry = typed_json.read(row, _Entry, place)
    stack = answers.recorded_subject(entry["stack"], fact_types.Stack, f"{place}.stack")
    answer = entry["answer"]
    if answer is not None:
        answer = answers.recorded_subject(answer, fact_types.Transaction, f"{place}.answer")
    return HostRecord(stack, entry["gpu_stack"], entry["question"], answer)
