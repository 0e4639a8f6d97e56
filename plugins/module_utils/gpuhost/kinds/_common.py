"""What every kind does alike: guard each knob's reading, and turn what was found into a `Reading`."""

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
from ..snapshot import View


def read_each(view: View, knobs: Sequence[Knob], read: Callable[[View, Knob], Reading]) -> list[Reading]:
    """Read knob by knob: what one cannot have or cannot know says nothing about the others."""
    return [guarded(knob, lambda knob=knob: read(view, knob)) for knob in knobs]  # type: ignore[misc]


def guarded(knob: Knob, read: Callable[[], Reading]) -> Reading:
    """The reading, or the one that says why there is none."""
    wanted = str(knob.value)
    try:
        return read()
    except Unsupported as reason:
        return Reading(knob.name, wanted, state=UNSUPPORTED, reason=str(reason))
    except Refused as reason:
        return Reading(knob.name, wanted, state=REFUSED, reason=str(reason))
    except Unreadable as reason:
        return Reading(knob.name, wanted, state=UNKNOWN, reason=str(reason))
    except OSError as error:
        return Reading(knob.name, wanted, state=UNKNOWN, reason=f"cannot read {error.filename}: {error.strerror}")
    except ValueError as error:  # a number that is none, in somebody's file
        return Reading(knob.name, wanted, state=UNKNOWN, reason=f"cannot understand what is there: {error}")


def all_alike(knobs: Sequence[Knob], reason: Exception) -> list[Reading]:
    """The same reason for every knob, where what they share could not be had."""

    def fail() -> Reading:
        raise reason

    return [guarded(knob, fail) for knob in knobs]


def settled(knob: Knob, **found: Any) -> Reading:
    """A reading whose state follows from what is left to do and who else has a say."""
    state = OK
    if found.get("steps") or found.get("refresh"):
        state = DIFFERS
    elif any(rival.wins for rival in found.get("conflicts", ())):
        state = CONTESTED
    elif found.get("reboot"):
        state = PENDING
    return Reading(knob.name, str(knob.value), state=state, **found)
