"""What a deployment is made of: what was checked, what would change, and what is told meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuctl.cluster.environment import Environment, Object
from gpuctl.domain.findings import Finding, Verdict

# refused: the server does not take it. recreate: it does so only where the object is made anew.
Action = Literal["create", "change", "recreate", "remove", "same", "refused"]
# Kinds that an older cluster may lack, and what it is then without.
SPARED = {"PodDisruptionBudget": "pods may be evicted in the middle of a training (Kubernetes 1.21 and newer have it)"}
# Hears what goes on: what it is about ("Pod lab-0"), and a few words.
Tell = Callable[[str, str], None]


@dataclass(frozen=True)
class Field:
    """One value of an object, by its way from the top; None where it is not there."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Change:
    """What becomes of an object; `note` says what the fields do not."""

    kind: str
    name: str
    action: Action
    fields: Sequence[Field] = ()
    note: str = ""

    @property
    def subject(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Standing:
    """An object as it is wanted, and as it is on the cluster; `served`: the cluster knows its kind.

    `unread`: why nobody knows whether it is there.
    """

    wanted: Object
    live: Object | None = None
    served: bool = True
    unread: str = ""

    @property
    def subject(self) -> str:
        return f"{self.wanted['kind']} {self.wanted['metadata']['name']}"

    @property
    def spared(self) -> bool:
        """Whether the cluster lacks its kind, and may."""
        return not self.served and self.wanted["kind"] in SPARED

    @property
    def going(self) -> bool:
        """Whether it is being deleted."""
        return is_going(self.live or {})

    @property
    def missing(self) -> bool:
        """Whether it should be there, and is not."""
        return not (self.live or self.unread or self.spared)


@dataclass(frozen=True)
class Plan:
    """What a deployment would do. `fell_back`: why it is TCP although RDMA was wanted; empty where it is as wanted."""

    env: Environment
    findings: Sequence[Finding]
    changes: Sequence[Change]
    standing: Sequence[Standing]
    leftovers: Sequence[Object] = ()
    fell_back: str = ""

    @property
    def failed(self) -> list[Finding]:
        return [each for each in self.findings if each.verdict is Verdict.FAIL]

    def changes_of(self, *actions: Action) -> list[Change]:
        return [each for each in self.changes if each.action in actions]


def told(plan: Plan) -> dict[str, Any]:
    """A plan as plain data; of Secrets it has no values."""
    return {
        "environment": plan.env.name,
        "namespace": plan.env.namespace,
        "mode": plan.env.mode,
        "nodes": plan.env.nodes,
        "fell_back": plan.fell_back,
        "findings": [finding.as_dict() for finding in plan.findings],
        "changes": [asdict(each) for each in plan.changes],
    }


def is_going(found: Object) -> bool:
    """Whether an object on the cluster is being deleted: nobody can take that back."""
    return "deletionTimestamp" in (found.get("metadata") or {})


def is_ours(env: Environment, found: Object) -> bool:
    """Whether an object on the cluster is of this environment: it has all of its labels."""
    labels: Mapping[str, str] = found["metadata"].get("labels") or {}
    return env.labels.items() <= labels.items()
