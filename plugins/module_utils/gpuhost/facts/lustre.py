"""Parse what Lustre's client shows: lfs df, the states of its connections, and the sizes of its reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answer_types import LustreImport, LustreTarget

_TARGET = re.compile(r"^(\S+-(?:MDT|OST)[0-9a-f]{4})(?:_UUID)?\s+(\S.*)$")
_INACTIVE = re.compile(r"^((?:\S+-)?(?:MDT|OST)[0-9a-f]{4})(?:_UUID)?\s*:\s*(.+)$")
_PART = re.compile(r"(?:MDT|OST)[0-9a-f]{4}|\[(?:MDT|OST):")  # of a line that is cut
_STATE = re.compile(r"^\s*current_state:\s*(\w+)", re.MULTILINE)
_PAST = re.compile(r"\[\s*\d+,\s*(\w+)\s*\]")
_PAGES = re.compile(r"^pages per rpc .*?$\n((?:\d+:.*\n?)*)", re.MULTILINE)


def parse_df(text: str) -> tuple[list[LustreTarget], list[str], bool]:
    """(targets, lines that are not understood, True if the summary of a file system ends the text)."""
    targets: list[LustreTarget] = []
    odd: list[str] = []
    ends = inodes = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("UUID"):
            inodes = line.split()[1:2] == ["Inodes"]
        elif line.startswith("filesystem"):
            ends = True
        elif _INACTIVE.match(line) or _TARGET.match(line):
            target = _target(line, inodes)
            if target is None:
                odd.append(line)
            else:
                targets.append(target)
        elif _PART.search(line):
            odd.append(line)
    return targets, odd, ends


def _target(line: str, inodes: bool) -> LustreTarget | None:
    """A target by its line; None if the line is cut."""
    inactive, row = _INACTIVE.match(line), _TARGET.match(line)
    if inactive:
        name, empty = inactive.group(1), None
        return {"target": name, "inodes": inodes, "used_percent": empty, "available": empty, "mount": empty,
                "error": inactive.group(2)}  # fmt: skip
    cells = row.group(2).split() if row else []
    percent = re.fullmatch(r"(\d{1,3})%", cells[3]) if len(cells) >= 5 else None
    if row is None or percent is None:
        return None
    mount = re.sub(r"\[(?:OST|MDT):\d+\]$", "", cells[4])
    return {"target": row.group(1), "inodes": inodes, "used_percent": int(percent.group(1)), "available": cells[2],
            "mount": mount, "error": None}  # fmt: skip


def parse_state(folder: str, text: str) -> LustreImport | None:
    """State of the connection to a target, from the file `state` in a folder such as fs-OST0000-osc-ffff8c.

    `evicted`: True if a server has ended it since the file system was mounted. None if the text has no state.
    """
    state = _STATE.search(text)
    if state is None:
        return None
    name = re.sub(r"-(?:osc|mdc)-.*$", "", folder)
    return {"target": name, "state": state.group(1), "evicted": "EVICTED" in _PAST.findall(text)}


def parse_rpc_stats(text: str) -> dict[str, int] | None:
    """Reads by their size: {pages of 4 KiB: requests}; None if the text has no such table."""
    table = _PAGES.search(text)
    if table is None:
        return None
    return {pages: int(count) for pages, count in re.findall(r"^(\d+):\s+(\d+)\s", table.group(1), re.MULTILINE)}
