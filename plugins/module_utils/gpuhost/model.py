"""The values that reading, deciding and acting hand to one another."""

from __future__ import annotations

from typing import Any, NamedTuple

OK = "ok"  # runs as wanted and survives a reboot
DIFFERS = "differs"  # can be made so; `steps` say how
REFUSED = "refused"  # can be made so, but not now: the reason says why
UNSUPPORTED = "unsupported"  # this host cannot have it
UNKNOWN = "unknown"  # could not be read
FAILED = "failed"  # was tried and did not work
PENDING = "pending"  # done, and takes effect with the next boot, or the next start of a service
CONTESTED = "contested"  # done, and somebody else will undo it at the next boot
CONFLICT = "conflict"  # to be put back, but somebody else has changed it since


class Unsupported(Exception):
    """This host cannot have the setting; the text says why."""


class Unreadable(Exception):
    """The setting may be there but could not be read; the text says why."""


class Refused(Exception):
    """Doing it now would do harm; the text says what and how to go on."""


class Knob(NamedTuple):
    """One wanted setting of a profile. `name` is "<kind>.<key>", `value` is what `kinds` normalised it to."""

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
    """One change to one setting: the text it holds before (None: nothing there) and shall hold after."""

    setting: str
    before: str | None
    after: str | None


class Conflict(NamedTuple):
    """Another owner of the same knob. `wins` says who has the last word after a reboot: they, or gpuctl."""

    owner: str
    where: str
    value: str
    wins: bool


class Reading(NamedTuple):
    """What one knob is now and will be after a reboot, and the steps that make it what it should be.

    `now` and `boot` are for people; None means that this side does not apply (a kernel argument has no other way
    than the next boot). `refresh` names what must run after the files are right (see `settings.REFRESH`).
    """

    knob: str
    wanted: str
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
        """The same reading with some fields changed."""
        return self._replace(**changes)
