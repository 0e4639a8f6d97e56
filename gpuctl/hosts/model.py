"""Hosts of an inventory, and the result of a run on one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

# The fields of a knob, in the engine's answer, that describe the state of its setting.
STATE_FIELDS = ("now", "boot", "state", "reason", "reboot")


@dataclass(frozen=True)
class Target:
    """A host and its connection over ssh; empty fields follow the user's own ssh configuration.

    `needs_ansible`: why only Ansible can reach it; "" if ssh can. `profile`: host_profile_name as the inventory has
    it, "" if it has none.
    """

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
    profile: str = ""
    needs_ansible: str = ""


@dataclass(frozen=True)
class HostResult:
    """The answer of one host, or the reason why there is none.

    `answer`: the engine's (gpuhost.api). `wrong` and `hint`: why there is no answer, or what failed after it.
    `unreachable`: the login failed, unlike on a host that cannot do what was requested (no root, another run active).
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
        """True if a run would change a setting of this host."""
        return any(knob["state"] == "differs" for knob in self.knobs)

    @property
    def changed(self) -> bool:
        return any(knob["changed"] for knob in self.knobs)

    def after_reboot(self, later: HostResult) -> HostResult:
        """The changes of this result with the state of the settings in a later one."""
        if later.answer is None:
            return replace(self, wrong=later.wrong, hint=later.hint, unreachable=later.unreachable)
        states = {knob["knob"]: {name: knob[name] for name in STATE_FIELDS} for knob in later.knobs}
        knobs = [{**knob, **states.get(knob["knob"], {})} for knob in self.knobs]
        return replace(self, answer={**(self.answer or {}), "knobs": knobs})
