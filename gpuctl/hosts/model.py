"""Hosts as an inventory names them, and what a visit to one came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

# What of a knob says how it stands, in the engine's answer.
STANDS = ("now", "boot", "state", "reason", "reboot")


@dataclass(frozen=True)
class Target:
    """How the direct carrier reaches a host; `needs_ansible` says why it cannot ("" where it can)."""

    name: str
    address: str = ""
    port: int | None = None
    user: str = ""
    key: str = ""
    ssh_args: tuple[str, ...] = ()
    become: bool = False
    become_user: str = "root"
    python: str = ""
    local: bool = False
    profile: str = ""  # what the inventory says this host is tuned to (host_profile_name), as written; "" for nothing
    needs_ansible: str = ""


@dataclass(frozen=True)
class Visit:
    """What one host answered, or why it did not.

    `answer` is the engine's (see gpuhost.api.visit); `wrong` and `hint` are set where there is none, or where
    something went wrong after it.
    `unreachable` tells a host that did not let us in from one that could not do it (no root, another run at work).
    """

    host: str
    answer: Mapping[str, Any] | None = None
    wrong: str = ""
    hint: str = ""
    unreachable: bool = False
    seconds: float = 0.0

    @property
    def knobs(self) -> list[Mapping[str, Any]]:
        return list(self.answer["knobs"]) if self.answer and "knobs" in self.answer else []

    @property
    def differs(self) -> bool:
        """Whether a run would change something there."""
        return any(knob["state"] == "differs" for knob in self.knobs)

    @property
    def changed(self) -> bool:
        return any(knob["changed"] for knob in self.knobs)

    def then(self, later: Visit) -> Visit:
        """What was changed on this visit, and how the host stood on a later one, after a reboot."""
        if later.answer is None:
            return replace(self, wrong=later.wrong, hint=later.hint, unreachable=later.unreachable)
        after = {knob["knob"]: {side: knob[side] for side in STANDS} for knob in later.knobs}
        knobs = [{**knob, **after.get(knob["knob"], {})} for knob in self.knobs]
        return replace(self, answer={**(self.answer or {}), "knobs": knobs})
