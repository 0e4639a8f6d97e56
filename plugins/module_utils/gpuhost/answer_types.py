"""Types of a host's answers to the actions of api.py; the controller holds every answer against them.

A host imports none of this. `form` is the first name of every answer, and is checked before its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from .bounds import Count
from .facts.answer_types import (
    Facts,
    HealthAndOutputs,
    HealthFacts,
    Machine,
    StackFacts,
    StorageLoadAnswer,
    TransactionFacts,
    UseFacts,
)

State = Literal["ok", "differs", "refused", "unsupported", "unknown", "failed", "pending", "contested", "conflict"]


class Reason(TypedDict):
    """Why a request was not carried out, and what to try."""

    wrong: str
    hint: str


class Failure(TypedDict):
    """Answer of a host that did not carry out the request."""

    form: int
    error: Reason


class Rival(TypedDict):
    """See `model.Conflict`."""

    owner: str
    where: str
    value: str
    wins: bool


class Change(TypedDict):
    """One setting, with its text before and after; None for absent."""

    setting: str
    before: str | None
    after: str | None


class Before(TypedDict):
    """State of a knob before the run that changed it."""

    now: str | None
    boot: str | None


class _Knob(TypedDict):
    knob: str
    desired: str
    now: str | None
    boot: str | None
    state: State
    reason: str
    changed: bool
    reboot: bool
    restores: bool
    disruptive: str
    conflicts: list[Rival]
    notes: list[str]
    steps: list[Change]


class Knob(_Knob, total=False):
    """See `changes.as_dict`."""

    was: Before


class _Visit(TypedDict):
    form: int
    machine: Machine
    busy: list[str]
    record: str | None
    knobs: list[Knob]


class Visit(_Visit, total=False):
    """Answer to "tune" and "undo"."""

    profile: str
    unrecorded: str
    read_only: bool
    notes: list[str]


class Repair(TypedDict):
    """Answer to "repair"."""

    form: int
    repaired: list[str]


class RecordRow(TypedDict):
    """See `record.Record`; `settings` is the number of its entries."""

    name: str
    action: str
    scope: str
    profile: str
    by: str
    at: str
    done: bool
    to: str
    settings: int


class Records(TypedDict):
    """Answer to "records"."""

    form: int
    records: list[RecordRow]


class _MachineFacts(TypedDict):
    form: int
    machine: Machine


class MachineFacts(_MachineFacts, total=False):
    """Answer to "facts". The type of `facts` depends on the subjects of the request: FACTS."""

    facts: object


class Acted(TypedDict):
    """Answer to "act". The type of `act` depends on the act of the request: acts/answer_types.py."""

    form: int
    act: object


class Diagnosis(TypedDict):
    """See `diagnosis.visit`. `users`: who uses the host, if the state is busy; `now`: the host's clock."""

    state: Literal["none", "running", "done", "lost", "missing", "busy"]
    now: Count
    level: Count | None
    began: Count | None
    by: str | None
    users: list[str]
    code: Count | None
    output: str | None
    error: str | None


class Diagnosed(TypedDict):
    """Answer to "diagnose"."""

    form: int
    diagnosis: Diagnosis


FACTS: Mapping[str, type] = {
    "nccl": Facts,
    "audit": HealthFacts,
    "audit and outputs": HealthAndOutputs,
    "gpu use": UseFacts,
    "stack": StackFacts,
    "storage load": StorageLoadAnswer,
    "transaction": TransactionFacts,
}
