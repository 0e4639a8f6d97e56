"""Rows as JSON text, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from gpuctl.reservations.rules.model import (
    AddedUser,
    Clock,
    Disk,
    DiskState,
    GithubKeys,
    Limits,
    Node,
    NodeState,
    Reservation,
    Row,
    Site,
    Slot,
    State,
    Usage,
)


def encode(row: Row) -> str:
    return json.dumps(asdict(row), separators=(",", ":"))


def decode(kind: str, text: str) -> Row:
    """The row of a kind (`decision.key`); ValueError, TypeError or KeyError if the text is not one."""
    return _DECODERS[kind](json.loads(text))


def encode_site(site: Site) -> str:
    return json.dumps(asdict(site), separators=(",", ":"))


def decode_site(text: str) -> Site:
    """The rules of a site; ValueError, TypeError or KeyError if the text has none."""
    plain = json.loads(text)
    limits = Limits(**{**plain["limits"], "warnings_min": tuple(plain["limits"]["warnings_min"])})
    return Site(**{**plain, "limits": limits})


def _reservation(plain: dict[str, Any]) -> Reservation:
    plain["state"] = State(plain["state"])
    plain["outcome"] = None if plain["outcome"] is None else State(plain["outcome"])
    plain["slots"] = tuple(Slot(slot["node"], tuple(slot["gpus"])) for slot in plain["slots"])
    plain["ready"], plain["cleared"] = tuple(plain["ready"]), tuple(plain["cleared"])
    for name in ("unwarned", "without_access"):
        plain[name] = tuple(plain.get(name, ()))
    plain["github"] = _github(plain)
    plain["users"] = tuple(AddedUser(**{**user, "github": _github(user)}) for user in plain.get("users", ()))
    return Reservation(**plain)


def _github(plain: dict[str, Any]) -> tuple[GithubKeys, ...]:
    return tuple(GithubKeys(**one) for one in plain.get("github", ()))


def _node(plain: dict[str, Any]) -> Node:
    plain["state"], plain["allocated"] = NodeState(plain["state"]), tuple(plain["allocated"])
    plain["uuids"] = tuple(plain.get("uuids", ()))
    return Node(**plain)


_DECODERS: Mapping[str, Callable[[dict[str, Any]], Row]] = {
    "reservation": _reservation,
    "node": _node,
    "usage": lambda plain: Usage(**plain),
    "disk": lambda plain: Disk(**{**plain, "state": DiskState(plain.get("state", DiskState.READY))}),
    "clock": lambda plain: Clock(**plain),
}
