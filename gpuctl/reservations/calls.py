"""Calls of people and the answers to them, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from gpuctl.core.errors import InvalidInput
from gpuctl.reservations.rules import access, gang
from gpuctl.reservations.rules.forecast import Wait
from gpuctl.reservations.rules.model import Book, Node, Reservation, State

DOING = "ask the reservation service"
Built = TypeVar("Built")


def nothing_left(content: Mapping[str, Any]) -> None:
    """Refuse fields that nobody reads: one with a name in it would look like an identity."""
    if content:
        wrong = f"the call has unknown fields: {', '.join(sorted(content))}"
        raise InvalidInput(DOING, wrong, "the caller is who the connection proves, never a field")


def build(kind: type[Built], content: Any) -> Built:
    """The value of a class with fields of plain types; `InvalidInput` for other fields or types."""
    types = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(content, dict) or not set(content) <= set(types):
        raise InvalidInput(DOING, f"the call has no valid {kind.__name__.lower()}", "use the same version of gpuctl")
    for name, value in content.items():
        if type(value).__name__.replace("NoneType", "None") not in types[name].split(" | "):
            raise InvalidInput(DOING, f"{name} is {value!r}, not {types[name]}", "use the same version of gpuctl")
    try:
        return kind(**content)
    except TypeError as error:
        raise InvalidInput(DOING, str(error), "use the same version of gpuctl") from error


def as_dict(row: Reservation, wait: Wait | None, book: Book | None = None) -> dict[str, Any]:
    """A reservation as JSON: instants in ISO 8601, UTC; null where one does not exist or is unknown."""
    instants = {
        "submitted": row.submitted_at,
        "active": row.active_at,
        "expires": row.end_at,
        "idle_end": row.idle_at,
        "kept_until": row.keep_until_at or None,
        "finished": row.finished_at,
        "promised_start": row.promised_at if row.state is State.QUEUED else None,
        "earliest_start": wait.earliest_at if wait else None,
        "latest_start": wait.latest_at if wait else None,
    }
    return {
        "id": row.id,
        "person": row.person,
        "state": str(row.state),
        "gpu_type": row.gpu_type,
        "gpus": row.total_gpus,
        "hours": row.length_s / 3600,
        "name": row.name,
        "users": [user.person for user in row.users],
        "access": row.access_reason,
        "without_access": list(row.without_access),
        "github": [{"login": one.login, "id": one.id} for one in access.github_of(row)],
        "jupyter": row.jupyter,
        "position": wait.position if wait else None,
        "reason": wait.reason if wait else row.reason,
        "warning": _warning(row),
        "slots": [{"node": slot.node, "gpus": list(slot.gpus)} for slot in row.slots],
        "logins": [_login(row, book.nodes[slot.node]) for slot in row.slots] if book else [],
        "environment": {s.node: gang.environment(row, book.nodes, s.node) for s in row.slots} if book else {},
        **{name: None if at is None else iso(at) for name, at in instants.items()},
    }


def _warning(row: Reservation) -> dict[str, Any] | None:
    """The latest warning before the end: its threshold, its instant, and nodes that it has not reached."""
    if row.warned_min is None or row.warned_at is None:
        return None
    return {"minutes": row.warned_min, "at": iso(row.warned_at), "not_delivered": list(row.unwarned)}


def _login(row: Reservation, node: Node) -> dict[str, Any]:
    if node.pods:  # `login` answers how it is reached
        return {"node": node.name, "address": None, "port": None, "user": None, "pod": True}
    address = node.address or node.name
    return {"node": node.name, "address": address, "port": node.port, "user": row.person, "pod": False}


def iso(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
