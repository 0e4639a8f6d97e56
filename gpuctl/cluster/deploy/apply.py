"""Apply a plan's objects one after the other by server-side apply, forced only for a confirmed take-over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.cluster.deploy import immutable, removal
from gpuctl.cluster.deploy.model import Action, Change, Plan, ProgressListener, is_ours
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import secret
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.kube_errors import Conflict
from gpuctl.edges import ssh_keys
from gpuctl.edges.kube.cluster import Cluster, name_of

REMOVAL_S = 120.0  # limit for the removal of an object that is recreated or no longer needed
PAST_TENSE: Mapping[Action, str] = {
    "create": "created",
    "change": "changed",
    "grow": "grown",
    "take-over": "taken over",
    "recreate": "recreated",
    "remove": "removed",
}
ACTION = "deploy"


@dataclass
class Applied:
    """Progress of an apply: the subjects that were changed, and the total number of changes."""

    done: list[str] = field(default_factory=list)
    total: int = 0

    @property
    def summary(self) -> str:
        listed = f": {', '.join(self.done)}" if self.done else ""
        return f"{len(self.done)} of {self.total} changes were made{listed}"


class NotApplied(GpuctlError):
    """The apply stopped half way; running the same command again continues from there."""


def filled(env: Environment, desired: Sequence[Object], live: Sequence[Object | None]) -> list[Object]:
    """Return the objects with the Secret filled in: existing values are kept, missing ones generated."""
    return [
        secret.filled(env, (live_object or {}).get("data") or {}, ssh_keys.pair) if obj["kind"] == "Secret" else obj
        for obj, live_object in zip(desired, live, strict=True)
    ]


def apply(cluster: Cluster, plan: Plan, tell: ProgressListener, applied: Applied) -> None:
    """Make every change of the plan; `applied` is up to date at any moment.

    Raises `NotApplied` when a change fails. Earlier changes stay: the next attempt builds on them.
    """
    desired = {state.subject: state.desired for state in plan.states}
    leftovers = {name_of(obj): obj for obj in plan.leftovers}
    todo = [change for change in plan.changes if change.action in PAST_TENSE]
    applied.total = len(todo)
    for change in todo:
        try:
            if change.action == "remove":
                _remove(cluster, leftovers[change.subject])
            else:
                _apply_change(cluster, plan.env, change, desired[change.subject], tell)
        except GpuctlError as error:
            hint = error.hint or "run the same command again to continue"
            raise NotApplied(
                f"{ACTION} {plan.env.name}", f"{_failure(change, error)}; {applied.summary}", hint
            ) from error
        applied.done.append(change.subject)
        tell(change.subject, PAST_TENSE[change.action])


def _failure(change: Change, error: GpuctlError) -> str:
    return f"{change.subject}: {error.wrong}"


def _apply_change(cluster: Cluster, env: Environment, change: Change, desired: Object, tell: ProgressListener) -> None:
    """Apply one change; the live object is read again, because somebody may have created one of that name since."""
    kind = cluster.kind_of(desired)
    live = cluster.get(kind, desired["metadata"]["name"])
    if live is not None and not is_ours(env, live):
        raise Conflict(
            f"apply {change.subject}", "an object of that name was created meanwhile and is not ours; it was left alone"
        )
    if desired["kind"] == "Secret":  # filled from the current one: a changed password locks people out
        desired = filled(env, [desired], [live])[0]
    if change.action == "recreate" and live is not None:
        tell(change.subject, "is removed and recreated")
        _remove(cluster, live)
    elif immutable.template_sizes(desired, live) and live is not None:
        tell(change.subject, "is replaced without its pods")
        _remove(cluster, live, "Orphan")
    # The size of a volume belongs to the controller that created its claim.
    cluster.apply(desired, force=change.action in ("take-over", "grow"))


def _remove(cluster: Cluster, obj: Object, propagation: str = "Foreground") -> None:
    """Delete an object, by default with its dependents, and wait until it is gone."""
    left = removal.remove(cluster, [obj], REMOVAL_S, propagation=propagation)
    if left:
        raise GpuctlError(f"remove {name_of(obj)}", f"it still exists after {REMOVAL_S:g} s")
