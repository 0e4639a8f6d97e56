"""Types of knob values: each turns a profile's value into its normal text, or raises ValueError with the problem."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Type(Protocol):
    """The type of a knob's value."""

    def check(self, value: object) -> str:
        """The normal text of a value; ValueError with the problem, as in "must be …"."""


class Int(NamedTuple):
    """A whole number in a range, without a unit."""

    low: int | None = None
    high: int | None = None

    def check(self, value: object) -> str:
        if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"must be a whole number without a unit, not {value!r}")
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            raise ValueError(f"must lie between {self.low} and {self.high}, not {value}")
        return str(value)


class Size(NamedTuple):
    """A number of bytes, with an optional KiB, MiB or GiB."""

    low: int = 0

    def check(self, value: object) -> str:
        match = re.fullmatch(r"(\d+) ?(|KiB|MiB|GiB)", str(value))
        if match is None or isinstance(value, bool):
            raise ValueError(f"must be a number of bytes, such as 33554432 or 32MiB, not {value!r}")
        size = int(match.group(1)) * UNITS[match.group(2)]
        if size < self.low:
            raise ValueError(f"must be at least {self.low} bytes, not {size}")
        return str(size)


class Ints(NamedTuple):
    """A fixed count of whole numbers; sizes may have a unit."""

    many: int

    def check(self, value: object) -> str:
        parts = value if isinstance(value, Sequence) and not isinstance(value, str) else str(value).split()
        if len(parts) != self.many:
            raise ValueError(f"must be {self.many} numbers, not {value!r}")
        return " ".join(Size().check(part) for part in parts)


class OneOf(NamedTuple):
    """One of a few words. True and false count as on and off, as some YAML readers convert them."""

    choices: tuple[str, ...]

    def check(self, value: object) -> str:
        text = {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
        if text not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}, not {value!r}")
        return text


class Text(NamedTuple):
    """One line of text."""

    pattern: str = r"[^\n]+"

    def check(self, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not re.fullmatch(self.pattern, str(value)):
            raise ValueError(f"must be one line of text, not {value!r}")
        return " ".join(str(value).split())


BY_NAME: dict[str, Type] = {"int": Int(), "bytes": Size(), "text": Text()}
