"""Brings the objects of a plan to the cluster, one after the other, each by server-side apply that is never forced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.cluster.deploy import removal
from gpuctl.cluster.deploy.model import Change, Plan, Tell, is_ours
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import secret
from gpuctl.core.errors import GpuctlError
from gpuctl.edges import ssh_keys
from gpuctl.edges.kube.cluster import Cluster, name_of
from gpuctl.edges.kube.errors import Conflict

GOING_S = 120.0  # until an object that is made anew, or of no use any more, is gone
WORDS: Mapping[str, str] = {"create": "created", "change": "changed", "recreate": "made anew", "remove": "removed"}
DOING = "deploy"


@dataclass
class Applied:
    """What was done so far, in words, and how much there is to do."""

    done: list[str] = field(default_factory=list)
    of: int = 0

    @property
    def words(self) -> str:
        listed = f": {', '.join(self.done)}" if self.done else ""
        return f"{len(self.done)} of {self.of} changes were made{listed}"


class NotApplied(GpuctlError):
    """It stopped half way; the same command goes on from there."""


def filled(env: Environment, desired: Sequence[Object], live: Sequence[Object | None]) -> list[Object]:
    """The objects with the Secret's values: those that are there, new ones where there are none."""
    return [
        secret.filled(env, (live_object or {}).get("data") or {}, ssh_keys.pair) if obj["kind"] == "Secret" else obj
        for obj, live_object in zip(desired, live, strict=True)
    ]


def apply(cluster: Cluster, plan: Plan, tell: Tell, applied: Applied) -> None:
    """Make every change of the plan; `applied` knows at any moment what was done.

    `NotApplied` where one fails: those before it stay, for they are of use to the next try.
    """
    desired = {state.subject: state.wanted for state in plan.standing}
    leftovers = {name_of(obj): obj for obj in plan.leftovers}
    todo = [change for change in plan.changes if change.action in WORDS]
    applied.of = len(todo)
    for change in todo:
        try:
            if change.action == "remove":
                _remove(cluster, leftovers[change.subject])
            else:
                _one(cluster, plan.env, change, desired[change.subject], tell)
        except GpuctlError as error:
            hint = error.hint or "the same command goes on from here"
            raise NotApplied(f"{DOING} {plan.env.name}", f"{_told(change, error)}; {applied.words}", hint) from error
        applied.done.append(change.subject)
        tell(change.subject, WORDS[change.action])


def _told(change: Change, error: GpuctlError) -> str:
    return f"{change.subject}: {error.wrong}"


def _one(cluster: Cluster, env: Environment, change: Change, desired: Object, tell: Tell) -> None:
    """Looked at once more: somebody may have made one of that name since."""
    kind = cluster.kind_of(desired)
    live = cluster.get(kind, desired["metadata"]["name"])
    if live is not None and not is_ours(env, live):
        raise Conflict(f"apply {change.subject}", "it is there by now, and is not ours; it was left alone")
    if desired["kind"] == "Secret":  # as it is now, for a password that changes locks people out
        desired = filled(env, [desired], [live])[0]
    if change.action == "recreate" and live is not None:
        tell(change.subject, "is removed, to be made anew")
        _remove(cluster, live)
    cluster.apply(desired)


def _remove(cluster: Cluster, obj: Object) -> None:
    """With what belongs to it, and until it is gone."""
    left = removal.remove(cluster, [obj], GOING_S)
    if left:
        raise GpuctlError(f"remove {name_of(obj)}", f"it is still there after {GOING_S:g} s")
