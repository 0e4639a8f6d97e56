"""Values of a deployment: findings of the preflight, changes of objects, and the plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from gpuctl.cluster.environment import Environment, Object
from gpuctl.domain.findings import Finding, Verdict

# take-over: others changed fields of it, which are set back only with consent.
# grow: a volume grows.
# refused: the server rejects it. recreate: the server accepts it only if the object is deleted and created again.
Action = Literal["create", "change", "grow", "recreate", "remove", "same", "take-over", "refused"]
# Kinds that an older cluster may lack, and the consequence.
OPTIONAL_KINDS = {
    "PodDisruptionBudget": "pods may be evicted in the middle of a training (Kubernetes 1.21 and newer have it)"
}
# Receives progress: the subject ("Pod lab-0") and a short message.
ProgressListener = Callable[[str, str], None]


@dataclass(frozen=True)
class Field:
    """One value of an object, by its path; None if it is absent."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Change:
    """The planned change of an object; `note` adds what the fields do not show."""

    kind: str
    name: str
    action: Action
    fields: Sequence[Field] = ()
    note: str = ""

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class ObjectState:
    """An object as desired and as it is on the cluster; `served`: the cluster serves its kind.

    `unread`: why it could not be read; whether it exists is then unknown.
    """

    desired: Object
    live: Object | None = None
    served: bool = True
    unread: str = ""

    @property
    def subject(self) -> str:
        return subject_of(self.desired)

    @property
    def optional_kind_missing(self) -> bool:
        """True if the cluster does not serve the kind, and the environment works without it."""
        return not self.served and self.desired["kind"] in OPTIONAL_KINDS

    @property
    def terminating(self) -> bool:
        """True if the object is being deleted."""
        return is_terminating(self.live or {})

    @property
    def missing(self) -> bool:
        """True if the object should exist and does not."""
        return not (self.live or self.unread or self.optional_kind_missing)


class DryRun(Protocol):
    """Server-side dry run; returns the object as it would be, and raises what the server refuses it for."""

    def __call__(self, desired: Object, /, *, force: bool) -> Object: ...


@dataclass(frozen=True)
class Plan:
    """The plan of a deployment. `fell_back`: why it is TCP although RDMA was preferred; else empty.

    `take_over`: consent to set back fields that others changed.
    """

    env: Environment
    findings: Sequence[Finding]
    changes: Sequence[Change]
    states: Sequence[ObjectState]
    leftovers: Sequence[Object] = ()
    fell_back: str = ""
    take_over: bool = False

    @property
    def failed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict is Verdict.FAIL]

    def changes_of(self, *actions: Action) -> list[Change]:
        return [change for change in self.changes if change.action in actions]


def digest(plan: Plan) -> str:
    """Return a hash of everything that applying the plan would do: equal plans have equal digests.

    Values of Secrets are left out: they are generated for every plan of a first deployment.
    """
    desired = [
        {name: part for name, part in state.desired.items() if not _is_secret_value(state.desired, name)}
        for state in plan.states
    ]
    content = {
        "environment": [plan.env.name, plan.env.namespace, plan.env.mode, plan.env.nodes],
        "changes": [asdict(change) for change in plan.changes],
        "desired": desired,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _is_secret_value(obj: Object, part: str) -> bool:
    return obj["kind"] == "Secret" and part in ("data", "stringData")


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """Serialize a plan; values of Secrets are hidden."""
    return {
        "environment": plan.env.name,
        "namespace": plan.env.namespace,
        "mode": plan.env.mode,
        "nodes": plan.env.nodes,
        "fell_back": plan.fell_back,
        "digest": digest(plan),
        "findings": [finding.as_dict() for finding in plan.findings],
        "changes": [asdict(change) for change in plan.changes],
    }


def subject_of(obj: Object) -> str:
    """Return kind and name, as in "Pod lab-0"."""
    return f"{obj['kind']} {obj['metadata']['name']}"


def is_terminating(obj: Object) -> bool:
    """Return True if an object is being deleted, which cannot be undone."""
    return "deletionTimestamp" in (obj.get("metadata") or {})


def is_ours(env: Environment, obj: Object) -> bool:
    """Return True if an object belongs to this environment: it has all of its labels."""
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return env.labels.items() <= labels.items()


def is_controlled(obj: Object) -> bool:
    """Return True if a controller owns the object, as a StatefulSet owns its pods."""
    return any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or [])
