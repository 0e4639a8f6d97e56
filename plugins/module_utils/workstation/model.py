"""The values of a workstation run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

OK = "OK"
INSTALLED = "INSTALLED"
MISSING = "MISSING"


class WorkstationError(Exception):
    """A tool, file or record cannot be used; the text is shown to the user as is."""


@dataclass(frozen=True)
class Folders:
    """The folders of a run: `bin` for links, `tools` for versions, `state` for the record.

    `gpuctl` is the running gpuctl command, if any; it is linked as well.
    """

    home: str
    bin: str
    tools: str
    state: str
    gpuctl: str = ""


@dataclass(frozen=True)
class Outcome:
    """The outcome for one tool: `source` is its path, package or address, `why` the problem or the planned action."""

    tool: str
    state: str
    version: str = ""
    source: str = ""
    why: str = ""
    changed: bool = False
    required: bool = False
    optional: bool = False

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def numbers(version: str) -> tuple[int, ...]:
    """Return the first version number in a text as a comparable tuple: 1.35.2 as (1, 35, 2)."""
    match = re.search(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def new_enough(version: str, minimal: str) -> bool:
    """True if a version is at least `minimal`; an unreadable version is not, unless `minimal` is empty."""
    return not minimal or (bool(numbers(version)) and numbers(version) >= numbers(minimal))


def program_of(tool: Mapping[str, Any]) -> str:
    return str(tool.get("program") or tool["name"])
