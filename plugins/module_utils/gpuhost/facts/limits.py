"""The limits that a job of the user who logged in gets here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..host import Host
from .login import User

UNLIMITED = "unlimited"


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{user, memlock, nofile}: bytes and number, or "unlimited"; the soft ones, which is what a program gets."""
    user: User = request["user"]
    empty = {"user": user.name, "memlock": None, "nofile": None}
    if not user.process:
        return {**empty, "unread": {"memlock": f"no process of user {user.uid} above ours shows its limits"}}
    text = host.read(f"/proc/{user.process}/limits")
    found = {"memlock": of(text, "Max locked memory"), "nofile": of(text, "Max open files")}
    unread = {name: "not in the kernel's list of limits" for name, value in found.items() if value is None}
    return {"user": user.name, **found, "unread": unread}


def of(text: str, name: str) -> int | str | None:
    """A soft limit from /proc/<pid>/limits: bytes, a number, or "unlimited"."""
    row = next((line[len(name) :].split() for line in text.splitlines() if line.startswith(name + " ")), None)
    if not row:
        return None
    return UNLIMITED if row[0] == UNLIMITED else int(row[0])
