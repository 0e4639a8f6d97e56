"""The record of an incident: one private JSON file, written as a whole before and after every step."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

from gpuctl.core import json_file
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.domain.findings import Finding
from gpuctl.incident.model import Answer, Entry, Incident, IncidentRequest, State, Step

FORM = "gpuctl incident 1"
HINT = "`gpuctl incident list` shows the incidents of this machine"


class _Answer(TypedDict):
    state: str
    summary: str
    findings: list[dict[str, Any]]
    details: dict[str, Any]


class _Begun(TypedDict, total=False):
    begun: str  # records of earlier versions lack it


class _Entry(_Begun):
    number: int
    step: str
    command: str
    began: str
    why: str
    finished: str
    answer: _Answer | None


class _Incident(TypedDict):
    name: str
    at: str
    actor: str
    request: IncidentRequest
    entries: list[_Entry]
    closed: str


def folder() -> Path:
    """Folder of the records and post-mortems, created if missing; `GpuctlError` if it cannot be written."""
    path = state_dir() / "incidents"
    try:
        return private(path)
    except OSError as error:
        raise GpuctlError(f"write in {path}", error.strerror or str(error), "set GPUCTL_STATE_DIR") from error


def names() -> list[str]:
    """Recorded incidents, the oldest first."""
    return sorted(path.stem for path in (state_dir() / "incidents").glob("*.json"))


def path_of(name: str) -> Path:
    """File of an incident; `InvalidInput` if none has this name."""
    path = state_dir() / "incidents" / f"{name}.json"
    if "/" in name or not path.is_file():
        raise InvalidInput(f"go on with the incident {name!r}", "no incident has this name", HINT)
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Refuse a second process on the same incident; the lock ends with the process, however it ends."""
    descriptor = os.open(folder() / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            wrong = "another process is at work on it"
            raise InvalidInput(f"go on with the incident {name}", wrong, "wait for it, or end it first") from error
        yield
    finally:
        os.close(descriptor)


def write(incident: Incident) -> None:
    """Write the record atomically; `GpuctlError` if that is not possible, before anything is done."""
    path = folder() / f"{incident.name}.json"
    try:
        write_atomically(path, json.dumps(as_dict(incident), indent=1) + "\n")
    except OSError as error:
        wrong = error.strerror or str(error)
        raise GpuctlError(f"record the incident in {path}", wrong, "nothing goes on without its record") from error


def as_dict(incident: Incident) -> dict[str, Any]:
    """Plain form: form, name, at, actor, request, entries, closed."""
    entries = [_entry_as_dict(one) for one in incident.entries]
    return {"form": FORM, **asdict(incident), "request": asdict(incident.request), "entries": entries}


def _entry_as_dict(entry: Entry) -> dict[str, Any]:
    answer = entry.answer and {
        "state": str(entry.answer.state),
        "summary": entry.answer.summary,
        "findings": [one.as_dict() for one in entry.answer.findings],
        "details": dict(entry.answer.details),
    }
    return {
        "number": entry.number,
        "step": str(entry.step),
        "command": entry.command,
        "began": entry.began,
        "why": entry.why,
        "finished": entry.finished,
        "answer": answer,
        "begun": entry.begun,
    }


def read(path: Path) -> Incident:
    """Read a record; `InvalidInput` names the mistake in the file."""
    doing = f"read the incident in {path}"
    hint = "`gpuctl incident start` writes such files"
    value = json_file.load(path, doing, hint)
    if not isinstance(value, dict) or value.get("form") != FORM:
        raise InvalidInput(doing, f"it is no record of an incident: its `form` is not {FORM!r}", hint)
    plain = json_file.fitting(value, _Incident, doing, hint)
    try:
        entries = tuple(_entry(one) for one in plain["entries"])
    except (KeyError, ValueError) as error:
        raise InvalidInput(doing, f"it is damaged: {error}", "use a copy of it") from error
    return Incident(plain["name"], plain["at"], plain["actor"], plain["request"], entries, plain["closed"])


def _entry(plain: _Entry) -> Entry:
    one = plain["answer"]
    answer = one and Answer(
        State(one["state"]), one["summary"], tuple(Finding.from_dict(row) for row in one["findings"]), one["details"]
    )
    return Entry(
        plain["number"],
        Step(plain["step"]),
        plain["command"],
        plain["began"],
        plain["why"],
        plain["finished"],
        answer,
        plain.get("begun", ""),
    )
