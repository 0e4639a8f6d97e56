"""What would become of each object: what the server would make of it, against what is there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from gpuctl.cluster.deploy.cluster_snapshot import AT_ONCE
from gpuctl.cluster.deploy.model import Change, Field, Standing
from gpuctl.cluster.deploy.quantity import amount
from gpuctl.cluster.environment import Environment, Object
from gpuctl.cluster.manifests import FIXED, VOLUMES
from gpuctl.cluster.manifests.pods import STARTED_WITH
from gpuctl.core.abandonable_pool import AbandonablePool
from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.edges.kube.cluster import Cluster
from gpuctl.edges.kube.errors import Forbidden, Invalid

HIDDEN = "(hidden)"
# What the server keeps for itself.
ITS_OWN = (
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "selfLink",
    "deletionTimestamp",
)
HOLDS_DATA = "it holds data: `destroy --volumes` removes it first, or the environment takes another name"
STAY = "volumes that are there already stay as they are"


def changes(cluster: Cluster, env: Environment, standing: Sequence[Standing]) -> list[Change]:
    """One for each object, by a dry run on the server, which makes nothing."""
    new = {each.subject for each in standing if each.live is None}

    def one(each: Standing) -> Change:
        return change(env, each, lambda: cluster.apply(each.wanted, dry_run=True), new)

    with AbandonablePool(AT_ONCE) as pool:
        return list(pool.map(one, standing))


def change(env: Environment, each: Standing, dry_run: Callable[[], Object], new: Collection[str] = ()) -> Change:
    """What becomes of one; `new`: the subjects of all that are to be created."""
    kind, name = each.wanted["kind"], each.wanted["metadata"]["name"]
    if each.live is not None and (fields := fixed(each.wanted, each.live)):
        if kind == VOLUMES[1]:
            return Change(kind, name, "refused", fields, HOLDS_DATA)
        return Change(kind, name, "recreate", fields, STAY if kind == "StatefulSet" else "")
    try:
        tried = dry_run()
    except Unreachable:
        raise
    except GpuctlError as error:
        return Change(kind, name, *_of_refusal(env, each, error, new))
    if each.live is None:
        return Change(kind, name, "create")
    fields = tuple(between(plain(each.live), plain(tried)))
    if kind == "Pod" and any(map(_of_its_start, fields)):
        return Change(kind, name, "recreate", fields, "")
    return Change(kind, name, "change" if fields else "same", hidden(kind, fields), _of_changing(kind, fields))


def _of_its_start(field: Field) -> bool:
    """Whether a pod that stands alone has to start anew to have it, for nothing else starts it."""
    return field.path.startswith("spec.") or field.path == f"metadata.annotations[{STARTED_WITH}]"


def _of_refusal(env: Environment, each: Standing, error: GpuctlError, new: Collection[str]) -> tuple[Any, ...]:
    """What a dry run that failed means: action, fields and note."""
    kind = each.wanted["kind"]
    if isinstance(error, Invalid) and each.live is not None and kind != VOLUMES[1]:
        return "recreate", (), error.wrong.partition("\n")[0]  # what follows is the server's own listing
    if each.live is None and _only_waits(env, kind, error, new):
        return "create", (), "checked by the server once its account is there"
    return "refused", (), error.wrong


def _only_waits(env: Environment, kind: str, error: GpuctlError, new: Collection[str]) -> bool:
    """A single pod is refused as long as its account is not there, which is made before it."""
    return kind == "Pod" and isinstance(error, Forbidden) and f"ServiceAccount {env.name}" in new


def _of_changing(kind: str, fields: Sequence[Field]) -> str:
    """What it means for what runs."""
    if kind == "StatefulSet" and any(field.path.startswith("spec.template.") for field in fields):
        return "its pods start anew, one after the other"
    return ""


def fixed(wanted: Object, live: Object) -> tuple[Field, ...]:
    """The fields that the server never changes, and that would have to."""
    before, after = live.get("spec") or {}, wanted.get("spec") or {}
    return tuple(
        Field(f"spec.{name}", before.get(name), after.get(name))
        for name in FIXED.get(wanted["kind"], ())
        if not covers(before.get(name), after.get(name))
    )


def covers(live: Any, wanted: Any) -> bool:
    """Whether what is wanted is there; the server adds fields, and writes a quantity in its own way."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        return all(name in live and covers(live[name], value) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(live, list):
        return len(wanted) == len(live) and all(map(covers, live, wanted))
    number = amount(wanted) if isinstance(wanted, str) else None
    return bool(live == wanted or (number is not None and number == amount(live)))


def plain(found: Object) -> Object:
    """An object without what the server keeps for itself."""
    meta = {name: value for name, value in found["metadata"].items() if name not in ITS_OWN}
    return {**{name: value for name, value in found.items() if name != "status"}, "metadata": meta}


def between(before: Any, after: Any, path: str = "") -> Iterator[Field]:
    """Every value that differs, by its way from the top."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from between(before.get(name), after.get(name), _inside(path, name))
    elif _named(before) and _named(after):
        old, new = ({each["name"]: each for each in listed} for listed in (before, after))
        for name in [*old, *(name for name in new if name not in old)]:
            yield from between(old.get(name), new.get(name), f"{path}[{name}]")
    elif before != after:
        yield Field(path, before, after)


def _named(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) and "name" in each for each in value)
    )


def _inside(path: str, name: str) -> str:
    part = f"[{name}]" if "/" in name or "." in name else name
    return f"{path}{part}" if part.startswith("[") or not path else f"{path}.{part}"


def hidden(kind: str, fields: Sequence[Field]) -> tuple[Field, ...]:
    """The same, without the values of a Secret, of which only the names are told."""
    if kind != "Secret":
        return tuple(fields)
    return tuple(
        Field(each.path, *(_keys(value) for value in (each.before, each.after)))
        if each.path.startswith(("data", "stringData"))
        else each
        for each in fields
    )


def _keys(value: Any) -> Any:
    if value is None:
        return None
    return dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else HIDDEN
