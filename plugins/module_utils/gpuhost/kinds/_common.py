"""Helpers of all kinds: guard the reading of each knob, and build its `Reading`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..model import (
    CONTESTED,
    DIFFERS,
    OK,
    PENDING,
    REFUSED,
    UNKNOWN,
    UNSUPPORTED,
    Knob,
    Reading,
    Refused,
    Unreadable,
    Unsupported,
)
from ..snapshot import HostSnapshot


def read_all(
    snapshot: HostSnapshot, knobs: Sequence[Knob], read: Callable[[HostSnapshot, Knob], Reading]
) -> list[Reading]:
    """Read knob by knob; an error of one does not affect the others."""
    return [guarded(knob, lambda knob=knob: read(snapshot, knob)) for knob in knobs]  # type: ignore[misc]


def guarded(knob: Knob, read: Callable[[], Reading]) -> Reading:
    """The reading, or one whose state and reason tell why it failed."""
    desired = str(knob.value)
    try:
        return read()
    except Unsupported as reason:
        return Reading(knob.name, desired, state=UNSUPPORTED, reason=str(reason))
    except Refused as reason:
        return Reading(knob.name, desired, state=REFUSED, reason=str(reason))
    except Unreadable as reason:
        return Reading(knob.name, desired, state=UNKNOWN, reason=str(reason))
    except OSError as error:
        return Reading(knob.name, desired, state=UNKNOWN, reason=f"cannot read {error.filename}: {error.strerror}")
    except ValueError as error:  # a malformed number in somebody's file
        return Reading(knob.name, desired, state=UNKNOWN, reason=f"cannot parse the current value: {error}")


def all_failed(knobs: Sequence[Knob], reason: Exception) -> list[Reading]:
    """One failure for all knobs, if a source that they share could not be read."""

    def fail() -> Reading:
        raise reason

    return [guarded(knob, fail) for knob in knobs]


def settled(knob: Knob, **fields: Any) -> Reading:
    """A reading; its state follows from its steps and conflicts, and whether it needs a reboot."""
    state = OK
    if fields.get("steps") or fields.get("refresh"):
        state = DIFFERS
    elif any(rival.wins for rival in fields.get("conflicts", ())):
        state = CONTESTED
    elif fields.get("reboot"):
        state = PENDING
    return Reading(knob.name, str(knob.value), state=state, **fields)
