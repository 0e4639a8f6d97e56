"""Facts, checks and diagnoses of the doctor, as frozen values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.environment import Environment, Mode, Object
from gpuctl.domain.findings import Finding, Verdict, ok

Name = Literal["start", "hang", "slow"]
QUESTIONS: Mapping[Name, str] = {"start": "a pod will not start", "hang": "NCCL hangs", "slow": "training is slow"}
Answer = Mapping[str, Any]


@dataclass(frozen=True)
class PodFacts:
    """Answer of the probe in a pod (pod/main.py). If the probe failed, `values` is empty and `why` gives the reason."""

    values: Answer = field(default_factory=dict)
    why: str = ""
    hint: str = ""

    def get(self, subject: str, name: str) -> Any:
        """Return a value; None if it was not read."""
        return (self.values.get(subject) or {}).get(name)

    def unread(self, subject: str) -> str:
        """Return why a whole subject is unknown; "" if it was read."""
        if self.why:
            return self.why
        answer = self.values.get(subject)
        return "the probe did not report it" if answer is None else str((answer.get("unread") or {}).get("*") or "")


@dataclass(frozen=True)
class Log:
    """Last log lines of a container and, after a restart, of its predecessor (`before`). `why`: reading failed.

    `times`: seconds since 1970 for each of `lines`, by the node's clock; None if unknown.
    """

    lines: Sequence[str] = ()
    before: Sequence[str] = ()
    why: str = ""
    times: Sequence[float | None] = ()

    def timed(self) -> list[tuple[float | None, str]]:
        return list(zip(self.times or [None] * len(self.lines), self.lines, strict=True))


@dataclass(frozen=True)
class Facts:
    """Everything that was read. `pods`: existing pods by name, in rank order. `mode` is None if not deployed.

    `snapshot` and `preflight`: the cluster as `cluster deploy` checks it, and its findings. `inside`: probe answers of
    running pods; empty if no check needs them. `now`: seconds since 1970 by the cluster's clock.
    """

    env: Environment
    mode: Mode | None
    owner: Object | None
    pods: Mapping[str, Object]
    missing: Sequence[str]  # deployed objects that no longer exist
    snapshot: ClusterSnapshot
    preflight: Sequence[Finding]
    events: Sequence[Object]
    events_why: str = ""
    logs: Mapping[str, Log] = field(default_factory=dict)
    inside: Mapping[str, PodFacts] = field(default_factory=dict)
    now: float | None = None

    @property
    def expected_pods(self) -> list[str]:
        """Names of the pods that should exist."""
        return [self.env.pod_name(rank) for rank in range(self.env.nodes)]

    @property
    def whole_gpus(self) -> bool:
        """True if pods request whole GPUs; nvidia-smi counts MIG instances differently."""
        return self.env.cluster.gpus.resource == "nvidia.com/gpu"

    def answered(self) -> dict[str, PodFacts]:
        """Return the pods whose probe answered."""
        return {name: inside for name, inside in self.inside.items() if not inside.why}

    def answering(self, *subjects: str) -> dict[str, PodFacts]:
        """Return the pods that reported all of these subjects; checks skip the others."""
        return {name: inside for name, inside in self.answered().items() if not any(map(inside.unread, subjects))}

    def readable(self) -> dict[str, Log]:
        return {name: log for name, log in self.logs.items() if not log.why}

    def events_of(self, about: Object | None) -> list[Object]:
        """Return the events of exactly this object, not of an earlier one with its name; oldest first."""
        uid = about["metadata"].get("uid") if about else None
        events = [event for event in self.events if (event.get("involvedObject") or {}).get("uid") == uid]
        return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


Run = Callable[[Facts], list[Finding]]


@dataclass(frozen=True)
class Check:
    """One check. `explains`: later checks whose failures follow from a failure of this one.

    `optional`: UNKNOWN is normal, because users can rarely read it, and does not change the verdict.
    """

    name: str
    run: Run
    explains: Sequence[str] = ()
    optional: bool = False


@dataclass(frozen=True)
class Trouble:
    """A symptom and its checks, from cheap and common to rare."""

    name: Name
    checks: Sequence[Check]


@dataclass(frozen=True)
class Diagnosis:
    """Result of all checks for one trouble. `cause` explains `evidence`; `also` are unrelated failures.

    `unavailable`: UNKNOWN findings of optional checks. `skipped`: checks that do not apply or lack their input.
    """

    trouble: Name
    cause: Sequence[Finding]
    evidence: Sequence[Finding]
    also: Sequence[Finding]
    warnings: Sequence[Finding]
    unknown: Sequence[Finding]
    unavailable: Sequence[Finding]
    checked: Sequence[str]
    skipped: Sequence[str] = ()

    @property
    def verdict(self) -> Verdict:
        if self.cause:
            return Verdict.FAIL
        if self.unknown:
            return Verdict.UNKNOWN
        return Verdict.WARN if self.warnings else Verdict.OK

    @property
    def clean(self) -> bool:
        return self.verdict in (Verdict.OK, Verdict.WARN)


def as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    findings_by_role = {
        role: [finding.as_dict() for finding in getattr(diagnosis, role)]
        for role in ("cause", "evidence", "also", "warnings", "unknown", "unavailable")
    }
    return {
        "trouble": diagnosis.trouble,
        "verdict": str(diagnosis.verdict),
        **findings_by_role,
        "checked": list(diagnosis.checked),
        "skipped": list(diagnosis.skipped),
    }


def findings(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings that count for the verdict, and an OK for each check without a finding."""
    listed = [*diagnosis.cause, *diagnosis.evidence, *diagnosis.also, *diagnosis.warnings, *diagnosis.unknown]
    named = {finding.check for finding in [*listed, *diagnosis.unavailable]}
    return [*listed, *(ok(check, "") for check in diagnosis.checked if check not in named)]
