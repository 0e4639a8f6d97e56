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
        told = f": {', '.join(self.done)}" if self.done else ""
        return f"{len(self.done)} of {self.of} changes were made{told}"


class NotApplied(GpuctlError):
    """It stopped half way; the same command goes on from there."""


def filled(env: Environment, wanted: Sequence[Object], live: Sequence[Object | None]) -> list[Object]:
    """The objects with the Secret's values: those that are there, new ones where there are none."""
    return [
        secret.filled(env, (there or {}).get("data") or {}, ssh_keys.pair) if each["kind"] == "Secret" else each
        for each, there in zip(wanted, live, strict=True)
    ]


def apply(cluster: Cluster, plan: Plan, tell: Tell, applied: Applied) -> None:
    """Make every change of the plan; `applied` knows at any moment what was done.

    `NotApplied` where one fails: those before it stay, for they are of use to the next try.
    """
    wanted = {each.subject: each.wanted for each in plan.standing}
    leftovers = {name_of(each): each for each in plan.leftovers}
    todo = [each for each in plan.changes if each.action in WORDS]
    applied.of = len(todo)
    for each in todo:
        try:
            if each.action == "remove":
                _remove(cluster, leftovers[each.subject])
            else:
                _one(cluster, plan.env, each, wanted[each.subject], tell)
        except GpuctlError as error:
            hint = error.hint or "the same command goes on from here"
            raise NotApplied(f"{DOING} {plan.env.name}", f"{_told(each, error)}; {applied.words}", hint) from error
        applied.done.append(each.subject)
        tell(each.subject, WORDS[each.action])


def _told(each: Change, error: GpuctlError) -> str:
    return f"{each.subject}: {error.wrong}"


def _one(cluster: Cluster, env: Environment, each: Change, wanted: Object, tell: Tell) -> None:
    """Looked at once more: somebody may have made one of that name since."""
    kind = cluster.kind_of(wanted)
    live = cluster.get(kind, wanted["metadata"]["name"])
    if live is not None and not is_ours(env, live):
        raise Conflict(f"apply {each.subject}", "it is there by now, and is not ours; it was left alone")
    if wanted["kind"] == "Secret":  # as it is now, for a password that changes locks people out
        wanted = filled(env, [wanted], [live])[0]
    if each.action == "recreate" and live is not None:
        tell(each.subject, "is removed, to be made anew")
        _remove(cluster, live)
    cluster.apply(wanted)


def _remove(cluster: Cluster, found: Object) -> None:
    """With what belongs to it, and until it is gone."""
    left = removal.remove(cluster, [found], GOING_S)
    if left:
        raise GpuctlError(f"remove {name_of(found)}", f"it is still there after {GOING_S:g} s")
