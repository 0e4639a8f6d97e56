"""Compute the change of each object: the result of a server-side dry run against the live object."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuctl.cluster.deploy.immutable import fixed
from gpuctl.cluster.deploy.model import Action, Change, DryRun, Field, ObjectState
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import VOLUMES
from gpuctl.cluster.manifests.pods import STARTED_WITH
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import Conflict, Forbidden, Invalid

HIDDEN = "(hidden)"
# Metadata that the server maintains.
SERVER_FIELDS = (
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "selfLink",
    "deletionTimestamp",
)
HOLDS_DATA = "it holds data: remove it first by `destroy --volumes`, or give the environment another name"
COUNT = "spec.replicas"
# The server does not tell who did so: 0 is left out of what it records of a scale. gpuctl scales to 1 or more.
SCALED_TO_ZERO = f"{COUNT} was set to 0 by somebody else"
STAY = "existing volumes stay as they are"


def change(env: Environment, state: ObjectState, dry_run: DryRun, new: Collection[str] = ()) -> Change:
    """Return the change of one object; `new`: the subjects of all objects that will be created."""
    kind, name = state.desired["kind"], state.desired["metadata"]["name"]
    if state.live is not None and (fields := fixed(state.desired, state.live)):
        return _of_fixed(kind, name, fields)
    try:
        tried = dry_run(state.desired, force=False)
    except Unreachable:
        raise
    except Conflict as error:
        return _take_over(state, error, dry_run)
    except GpuctlError as error:
        return Change(kind, name, *_of_refusal(env, state, error, new))
    if state.live is None:
        return Change(kind, name, "create")
    return _of_fields(kind, name, tuple(between(plain(state.live), plain(tried))))


def _of_fields(kind: str, name: str, fields: Sequence[Field]) -> Change:
    """Interpret the fields that the server would change without a conflict."""
    if any(field.path == COUNT and field.before == 0 for field in fields):
        effect = _of_changing(kind, fields)
        return Change(kind, name, "take-over", fields, f"{SCALED_TO_ZERO}; {effect}" if effect else SCALED_TO_ZERO)
    if kind == "Pod" and any(map(_of_its_start, fields)):
        return Change(kind, name, "recreate", fields, "")
    return Change(kind, name, "change" if fields else "same", hidden(kind, fields), _of_changing(kind, fields))


def with_sizes(planned: Change, sizes: Sequence[Field]) -> Change:
    """Add new sizes of claim templates to the change of a StatefulSet, which is replaced without ending its pods."""
    if not sizes or planned.action not in ("same", "change", "take-over"):
        return planned
    restarts = _of_changing(planned.kind, planned.fields)
    notes = [note for note in (planned.note, "" if restarts else "it is replaced, and its pods keep running") if note]
    action: Action = "change" if planned.action == "same" else planned.action
    return replace(planned, action=action, fields=(*sizes, *planned.fields), note="; ".join(notes))


def _of_fixed(kind: str, name: str, fields: Sequence[Field]) -> Change:
    """Interpret a change of immutable fields."""
    if kind == VOLUMES[1]:
        return Change(kind, name, "refused", fields, HOLDS_DATA)
    return Change(kind, name, "recreate", fields, STAY if kind == "StatefulSet" else "")


def _take_over(state: ObjectState, conflict: Conflict, dry_run: DryRun) -> Change:
    """Return both values of the fields that others own; "refused" if the server would not accept ours either.

    A standalone pod keeps what others changed: its fields cannot be set back without recreating it.
    """
    kind, name = state.desired["kind"], state.desired["metadata"]["name"]
    if state.live is None or not conflict.owners or kind == "Pod":
        return Change(kind, name, "refused", (), conflict.wrong)
    try:
        forced = dry_run(state.desired, force=True)
    except Unreachable:
        raise
    except GpuctlError as error:
        return Change(kind, name, "refused", (), f"{conflict.wrong}; {error.wrong}")
    fields = tuple(between(plain(state.live), plain(forced)))
    owners = ", ".join(f"{field.lstrip('.')} was set by {manager}" for field, manager in conflict.owners.items())
    effect = _of_changing(kind, fields)
    return Change(kind, name, "take-over", hidden(kind, fields), f"{owners}; {effect}" if effect else owners)


def _of_its_start(field: Field) -> bool:
    """Return True if a standalone pod has to be recreated for this field: no controller restarts it."""
    return field.path.startswith("spec.") or field.path == f"metadata.annotations[{STARTED_WITH}]"


def _of_refusal(env: Environment, state: ObjectState, error: GpuctlError, new: Collection[str]) -> tuple[Any, ...]:
    """Interpret a failed dry run: action, fields and note."""
    kind = state.desired["kind"]
    if isinstance(error, Invalid) and state.live is not None and kind != VOLUMES[1]:
        return "recreate", (), error.wrong.partition("\n")[0]  # the rest is the server's listing
    if state.live is None and _only_waits(env, kind, error, new):
        return "create", (), "checked by the server once its account exists"
    return "refused", (), error.wrong


def _only_waits(env: Environment, kind: str, error: GpuctlError, new: Collection[str]) -> bool:
    """Return True if a standalone pod is refused only because its account, created before it, is missing."""
    return kind == "Pod" and isinstance(error, Forbidden) and f"ServiceAccount {env.name}" in new


def _of_changing(kind: str, fields: Sequence[Field]) -> str:
    """Describe the effect on running pods."""
    if kind == "StatefulSet" and any(field.path.startswith("spec.template.") for field in fields):
        return "its pods restart, one after the other"
    return ""


def plain(obj: Object) -> Object:
    """Return an object without its status and the metadata that the server maintains."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in SERVER_FIELDS}
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": meta}


def between(before: Any, after: Any, path: str = "") -> Iterator[Field]:
    """Yield every value that differs, by its path."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from between(before.get(name), after.get(name), _inside(path, name))
    elif _named(before) and _named(after):
        old, new = ({item["name"]: item for item in listed} for listed in (before, after))
        for name in [*old, *(name for name in new if name not in old)]:
            yield from between(old.get(name), new.get(name), f"{path}[{name}]")
    elif before != after:
        yield Field(path, before, after)


def _named(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) and "name" in item for item in value)
    )


def _inside(path: str, name: str) -> str:
    part = f"[{name}]" if "/" in name or "." in name else name
    return f"{path}{part}" if part.startswith("[") or not path else f"{path}.{part}"


def hidden(kind: str, fields: Sequence[Field]) -> tuple[Field, ...]:
    """Hide the values of a Secret; only its keys are shown."""
    if kind != "Secret":
        return tuple(fields)
    return tuple(
        Field(field.path, *(_keys(value) for value in (field.before, field.after)))
        if field.path.startswith(("data", "stringData"))
        else field
        for field in fields
    )


def _keys(value: Any) -> Any:
    if value is None:
        return None
    return dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else HIDDEN
