"""Values shared by reading, planning and applying."""

from __future__ import annotations

from typing import Any, NamedTuple

OK = "ok"  # in force, now and after a reboot
DIFFERS = "differs"  # can be changed, by `steps`
REFUSED = "refused"  # can be changed, but not now
UNSUPPORTED = "unsupported"  # not available on this host
UNKNOWN = "unknown"  # could not be read
FAILED = "failed"  # the change did not work
PENDING = "pending"  # set; in force after the next boot or restart of a service
CONTESTED = "contested"  # set, but another owner reverts it at the next boot
CONFLICT = "conflict"  # not undone, as somebody else has changed it since


class Unsupported(Exception):
    """The setting is not available on this host; the message is the reason."""


class Unreadable(Exception):
    """The setting may exist, but could not be read; the message is the reason."""


class Refused(Exception):
    """The change would do harm now; the message says which, and what to do first."""


class Knob(NamedTuple):
    """One setting of a profile. `name` is "<kind>.<key>", `value` the normal form that its kind gives."""

    name: str
    value: Any
    why: str = ""
    source: str = ""

    @property
    def kind(self) -> str:
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        return self.name.partition(".")[2]


class Step(NamedTuple):
    """One change to one setting: its text before and after, None for absent."""

    setting: str
    before: str | None
    after: str | None


class Conflict(NamedTuple):
    """Another owner of the same knob. `wins`: its value, not gpuctl's, is in force after a reboot."""

    owner: str
    where: str
    value: str
    wins: bool


class Reading(NamedTuple):
    """State of one knob now and after a reboot, and the steps that change it to the desired value.

    `now` and `boot` are text for people; None if the side does not apply. `refresh` names the programs that must
    run once the files are right (see refresh.py).
    """

    knob: str
    desired: str
    now: str | None = None
    boot: str | None = None
    state: str = OK
    reason: str = ""
    steps: tuple[Step, ...] = ()
    refresh: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    disruptive: str = ""
    reboot: bool = False
    notes: tuple[str, ...] = ()
    restores: bool = False

    def but(self, **changes: Any) -> Reading:
        """A copy with some fields changed."""
        return self._replace(**changes)


class InvalidRequest(Exception):
    """The request cannot be carried out on this host; `hint` is what to try."""

    def __init__(self, wrong: str, hint: str) -> None:
        super().__init__(wrong)
        self.hint = hint
