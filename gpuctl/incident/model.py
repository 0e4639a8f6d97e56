"""An incident as frozen values: the request, the steps with their answers, and the cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from gpuctl.domain.findings import Finding


class Step(StrEnum):
    """A step of an incident. The values stand in the record, so that they never change."""

    LOG = "read log"
    NODES = "read nodes"
    PREFLIGHT = "preflight"
    TEST = "NCCL test"
    ISOLATE = "isolate"
    AUDIT = "audit"
    DRAIN = "drain"
    REPAIR = "repair"
    RETEST = "repeat the isolation"
    REAUDIT = "repeat the audit"
    GIVE_BACK = "give back"
    RESUME = "resume job"


ACTS = frozenset({Step.DRAIN, Step.REPAIR, Step.GIVE_BACK, Step.RESUME})  # each needs consent


class State(StrEnum):
    """Result of a step. UNKNOWN: it could not be made, or proves nothing; of an act: its end is unknown.

    Of acts alone: DECLINED without consent, REFUSED by the rules of `gpuctl nodes` with nothing done, FAILED.
    """

    DONE = "done"
    UNKNOWN = "unknown"
    DECLINED = "declined"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class IncidentRequest:
    """Incident to handle. `title`: job or text of the alert. `log`: the job's log, "" for none.

    `inventory`: None for this machine. `slurm`: the nodes are Slurm's, those of `job` if it is a number. Sizes in
    bytes, `timeout` in seconds for one launch. `context`: Kubernetes context in which nodes are drained. `resume_with`:
    command that resumes the job, as words.
    """

    title: str
    job: str = ""
    log: str = ""
    inventory: str | None = None
    limit: str = ""
    nodes: str = ""
    slurm: bool = False
    partition: str = ""
    search_path: tuple[str, ...] = ()
    ssh_args: str = ""
    as_root: bool = False
    gpus_per_node: int = 8
    begin_bytes: int = 512 << 20
    end_bytes: int = 4096 << 20
    timeout: float = 180.0
    instance: str | None = None
    network: str | None = None
    context: str = ""
    resume_with: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Result of a step. `details`: plain JSON values that decisions read; see the workflow of the step."""

    state: State
    summary: str
    findings: tuple[Finding, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Entry:
    """A step in the record. `command`: the command that does the same. `answer`: None until the step has ended.

    `begun`: run record of an act, from right before the act; "" if nothing was begun. Times are UTC, ISO 8601.
    """

    number: int
    step: Step
    command: str
    began: str
    why: str = ""
    finished: str = ""
    answer: Answer | None = None
    begun: str = ""


@dataclass(frozen=True)
class Incident:
    """An incident with all its steps. `closed`: time of its end, "" while it is open."""

    name: str
    at: str
    actor: str
    request: IncidentRequest
    entries: tuple[Entry, ...] = ()
    closed: str = ""

    @property
    def current(self) -> Entry | None:
        """The step that has begun and has no answer."""
        return self.entries[-1] if self.entries and self.entries[-1].answer is None else None

    def answer(self, step: Step) -> Answer | None:
        """Last answer of a step; None if it was not made."""
        return next((one.answer for one in reversed(self.entries) if one.step is step and one.answer), None)

    def with_entry(self, entry: Entry) -> Incident:
        """The incident with this step added, or in place of the one of its number."""
        others = tuple(one for one in self.entries if one.number != entry.number)
        return replace(self, entries=(*others, entry))


@dataclass(frozen=True)
class Planned:
    """The next step. `why`: the reason for it, for people."""

    step: Step
    command: str
    why: str


class Certainty(StrEnum):
    """Certainty of a cause."""

    PROVEN = "proven"
    LIKELY = "likely"
    UNKNOWN = "not found"


@dataclass(frozen=True)
class Cause:
    """Cause of an incident. `nodes`: the suspects, empty if it is no node. `evidence`: what it rests on."""

    text: str
    certainty: Certainty
    nodes: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
