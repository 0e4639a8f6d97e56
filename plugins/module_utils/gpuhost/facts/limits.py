"""Limits that a job of the login user gets on this host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..host import Host
from .login import User

if TYPE_CHECKING:
    from ..bounds import Unlimited
    from .answer_types import LimitsFacts

UNLIMITED: Literal["unlimited"] = "unlimited"


def read(host: Host, request: Mapping[str, Any]) -> LimitsFacts:
    """{user, memlock, nofile}: soft limits, in bytes or as a number, or "unlimited"."""
    user: User = request["user"]
    if not user.process:
        reason = f"no parent process of user {user.uid} shows its limits"
        return {"user": user.name, "memlock": None, "nofile": None, "unread": {"memlock": reason}}
    text = host.read(f"/proc/{user.process}/limits")
    memlock, nofile = soft_limit(text, "Max locked memory"), soft_limit(text, "Max open files")
    missing = [name for name, value in (("memlock", memlock), ("nofile", nofile)) if value is None]
    unread = dict.fromkeys(missing, "not in the kernel's list of limits")
    return {"user": user.name, "memlock": memlock, "nofile": nofile, "unread": unread}


def soft_limit(text: str, name: str) -> int | Unlimited | None:
    """A soft limit from /proc/<pid>/limits: bytes, a number, or "unlimited"."""
    row = next((line[len(name) :].split() for line in text.splitlines() if line.startswith(name + " ")), None)
    if not row:
        return None
    return UNLIMITED if row[0] == UNLIMITED else int(row[0])
