"""Limits that a job of the login user gets on this host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..host import Host
from .login import User

UNLIMITED = "unlimited"


def read(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """{user, memlock, nofile}: soft limits, in bytes or as a number, or "unlimited"."""
    user: User = request["user"]
    empty = {"user": user.name, "memlock": None, "nofile": None}
    if not user.process:
        return {**empty, "unread": {"memlock": f"no parent process of user {user.uid} shows its limits"}}
    text = host.read(f"/proc/{user.process}/limits")
    soft_limits = {"memlock": soft_limit(text, "Max locked memory"), "nofile": soft_limit(text, "Max open files")}
    unread = {name: "not in the kernel's list of limits" for name, value in soft_limits.items() if value is None}
    return {"user": user.name, **soft_limits, "unread": unread}


def soft_limit(text: str, name: str) -> int | str | None:
    """A soft limit from /proc/<pid>/limits: bytes, a number, or "unlimited"."""
    row = next((line[len(name) :].split() for line in text.splitlines() if line.startswith(name + " ")), None)
    if not row:
        return None
    return UNLIMITED if row[0] == UNLIMITED else int(row[0])
