"""Checks of knob values, shared by the kinds: each turns a profile's value into its one normal text or says why not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Type(Protocol):
    """What values a knob takes."""

    def check(self, value: object) -> str:
        """The normal text of a value; ValueError says what is wrong with it."""


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
    """A number of bytes; KiB, MiB and GiB may follow it."""

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
    """Several whole numbers; sizes may carry a unit."""

    many: int

    def check(self, value: object) -> str:
        parts = value if isinstance(value, Sequence) and not isinstance(value, str) else str(value).split()
        if len(parts) != self.many:
            raise ValueError(f"must be {self.many} numbers, not {value!r}")
        return " ".join(Size().check(part) for part in parts)


class Word(NamedTuple):
    """One of a few words. YAML reads on and off as true and false: both spellings are taken."""

    words: tuple[str, ...]

    def check(self, value: object) -> str:
        text = {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
        if text not in self.words:
            raise ValueError(f"must be one of {', '.join(self.words)}, not {value!r}")
        return text


class Text(NamedTuple):
    """Any one line of text."""

    pattern: str = r"[^\n]+"

    def check(self, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not re.fullmatch(self.pattern, str(value)):
            raise ValueError(f"must be one line of text, not {value!r}")
        return " ".join(str(value).split())


BY_NAME: dict[str, Type] = {"int": Int(), "bytes": Size(), "text": Text()}
