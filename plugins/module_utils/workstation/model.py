"""The values a visit to a workstation works with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

OK = "OK"
INSTALLED = "INSTALLED"
MISSING = "MISSING"


class Wrong(Exception):
    """Why something could not be had; its text is the reason shown."""


@dataclass(frozen=True)
class Place:
    """Where things go: programs are linked into `bin`, versions lie below `tools`, the record is in `state`.

    `gpuctl` is the command that runs us, where there is one: it is linked, too.
    """

    home: str
    bin: str
    tools: str
    state: str
    gpuctl: str = ""


@dataclass(frozen=True)
class Outcome:
    """How one tool ended; `came` says where it is from, `why` what is wrong or what would be done."""

    tool: str
    state: str
    version: str = ""
    came: str = ""
    why: str = ""
    changed: bool = False
    required: bool = False
    optional: bool = False

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def numbers(version: str) -> tuple[int, ...]:
    """1.35.2 as (1, 35, 2), to compare; the first of them in the text."""
    match = re.search(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def new_enough(version: str, minimal: str) -> bool:
    """Whether a version is at least the minimal one; one that could not be read is not, where any is asked for."""
    return not minimal or (bool(numbers(version)) and numbers(version) >= numbers(minimal))


def program_of(tool: Mapping[str, Any]) -> str:
    return str(tool.get("program") or tool["name"])
