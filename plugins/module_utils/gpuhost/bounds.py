"""Limits of values that cross from one machine to another, for annotations: `Annotated[int, Between(0, 100)]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple


class Between(NamedTuple):
    """Least and most allowed value of a number."""

    least: int
    most: int

    @property
    def name(self) -> str:
        return f"between {self.least} and {self.most}"

    def fits(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)


class Parsed(NamedTuple):
    """A text that `parse` takes without a ValueError."""

    parse: Callable[[str], object]
    name: str

    def fits(self, value: Any) -> bool:
        try:
            self.parse(value)
        except ValueError:
            return False
        return True


def _cpus(text: str) -> None:
    if not re.fullmatch(r"(\d{1,5}(-\d{1,5})?(,(?!$)|$))*", text):
        raise ValueError(text)


INT64 = Between(-(2**63), 2**64 - 1)  # signed and unsigned: the kernel counts in either

Count = Annotated[int, Between(0, 2**64 - 1)]
Amount = Annotated[float, Between(0, 2**64)]
Moment = Annotated[float, Between(0, 2**33)]  # seconds since 1970, until 2242: what a calendar can show
ExitStatus = Annotated[int, Between(0, 2**31 - 1)]
Signal = Annotated[int, Between(0, 2**31 - 1)]
Unlimited = Literal["unlimited"]
CpuList = Annotated[str, Parsed(_cpus, "a list of CPUs")]
Digits = Annotated[str, Parsed(int, "a number")]
