"""What the doctor looks for, and what it found: frozen values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuctl.cluster.deploy.cluster_snapshot import ClusterSnapshot
from gpuctl.cluster.environment import Environment, Mode, Object
from gpuctl.domain.findings import Finding, Verdict, ok

Name = Literal["start", "hang", "slow"]
WORDS: Mapping[Name, str] = {"start": "a pod will not start", "hang": "NCCL hangs", "slow": "training is slow"}
Inner = Mapping[str, Any]


@dataclass(frozen=True)
class Inside:
    """What a pod said of itself (pod/look.py); `said` is empty where it could not be asked, and `why` says so."""

    said: Inner = field(default_factory=dict)
    why: str = ""
    hint: str = ""

    def get(self, subject: str, name: str) -> Any:
        """A value; None where it was not read."""
        return (self.said.get(subject) or {}).get(name)

    def unread(self, subject: str) -> str:
        """Why a subject as a whole is not known; empty where it is."""
        if self.why:
            return self.why
        told = self.said.get(subject)
        return "it was not told" if told is None else str((told.get("unread") or {}).get("*") or "")


@dataclass(frozen=True)
class Log:
    """The last lines of a container, and of the one before it where it was started again; `why` they are not known.

    `times`: when each of `lines` was said, in seconds since 1970 by its node's clock; None where nobody knows.
    """

    lines: Sequence[str] = ()
    before: Sequence[str] = ()
    why: str = ""
    times: Sequence[float | None] = ()

    def timed(self) -> list[tuple[float | None, str]]:
        return list(zip(self.times or [None] * len(self.lines), self.lines, strict=True))


@dataclass(frozen=True)
class Facts:
    """All that was read. `pods`: those that are there, in their order; `mode` None: it is not deployed.

    `there` is the cluster as the preflight sees it, `preflight` what that says of it now. `inside` has the pods that
    run, and only where they were asked. `now`: by the cluster's clock, in seconds since 1970.
    """

    env: Environment
    mode: Mode | None
    owner: Object | None
    pods: Mapping[str, Object]
    missing: Sequence[str]  # objects that are not there any more
    there: ClusterSnapshot
    preflight: Sequence[Finding]
    events: Sequence[Object]
    events_why: str = ""
    logs: Mapping[str, Log] = field(default_factory=dict)
    inside: Mapping[str, Inside] = field(default_factory=dict)
    now: float | None = None

    @property
    def wanted(self) -> list[str]:
        """The pods that there are to be."""
        return [self.env.pod_name(rank) for rank in range(self.env.nodes)]

    @property
    def whole_gpus(self) -> bool:
        """Whether what a pod asks for are GPUs; parts of them (MIG) nvidia-smi counts otherwise."""
        return self.env.cluster.gpus.resource == "nvidia.com/gpu"

    def asked(self) -> dict[str, Inside]:
        """The pods that told of themselves."""
        return {name: each for name, each in self.inside.items() if not each.why}

    def telling(self, *subjects: str) -> dict[str, Inside]:
        """The pods that told of all of these subjects; of a pod that did not, nothing is to be said."""
        return {name: each for name, each in self.asked().items() if not any(map(each.unread, subjects))}

    def readable(self) -> dict[str, Log]:
        return {name: log for name, log in self.logs.items() if not log.why}

    def of(self, about: Object | None) -> list[Object]:
        """The events of exactly this object, not of an earlier one of its name; the oldest first."""
        uid = about["metadata"].get("uid") if about else None
        mine = [each for each in self.events if (each.get("involvedObject") or {}).get("uid") == uid]
        return sorted(mine, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))


Look = Callable[[Facts], list[Finding]]


@dataclass(frozen=True)
class Check:
    """One step of the walk. `explains`: the later checks whose failures follow from a failure of this one.

    `aside`: that it cannot be known from here is usual, and no reason to call the environment unwell.
    """

    name: str
    look: Look
    explains: Sequence[str] = ()
    aside: bool = False


@dataclass(frozen=True)
class Trouble:
    """A trouble, and the checks that the field walks for it: from cheap and common to rare."""

    name: Name
    checks: Sequence[Check]


@dataclass(frozen=True)
class Diagnosis:
    """What came of a walk. `cause` is what explains `evidence`; `also` is wrong besides; `looked`: the checks that told
    something, `passed_over` those that did not: they do not apply, or nobody
    told them what they need."""

    trouble: Name
    cause: Sequence[Finding]
    evidence: Sequence[Finding]
    also: Sequence[Finding]
    warnings: Sequence[Finding]
    unknown: Sequence[Finding]  # that matter
    aside: Sequence[Finding]  # unknown, as usual from here
    looked: Sequence[str]
    passed_over: Sequence[str] = ()

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


def told(found: Diagnosis) -> dict[str, Any]:
    """As plain data."""
    listed = {
        name: [finding.as_dict() for finding in getattr(found, name)]
        for name in ("cause", "evidence", "also", "warnings", "unknown", "aside")
    }
    words = {"trouble": found.trouble, "verdict": str(found.verdict)}
    return {**words, **listed, "looked_at": list(found.looked), "passed_over": list(found.passed_over)}


def findings(diagnosis: Diagnosis) -> list[Finding]:
    """All that counts for the verdict, and an OK for each check that found nothing."""
    listed = [*diagnosis.cause, *diagnosis.evidence, *diagnosis.also, *diagnosis.warnings, *diagnosis.unknown]
    named = {finding.check for finding in [*listed, *diagnosis.aside]}
    return [*listed, *(ok(check, "") for check in diagnosis.looked if check not in named)]
