"""What a sync works with: what is here, what a pod has, what is to be done, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuctl.domain.findings import Verdict

# Of a file here: bytes; when it was last written, and when it was changed at all, in ns since 1970.
Source = tuple[int, int, int]
FILE, LINK, FOLDER, BLOCKED, UNREADABLE = "file", "link", "folder", "blocked", "unreadable"


@dataclass(frozen=True)
class Item:
    """A file, link or folder here. `to`: where a link leads."""

    kind: str
    mode: int
    source: Source
    to: str = ""


@dataclass(frozen=True)
class Entry:
    """What a pod's record says of a path. `value`: SHA-256 of a file, or where a link leads.

    `by`: which folder it came from; `put`: a sync wrote it, it was not there before.
    """

    kind: str
    value: str
    mode: int
    source: Source
    by: str
    put: bool


@dataclass(frozen=True)
class There:
    """What a pod has at a path. `ours`: it is what a sync wrote, although not what the record says last."""

    kind: str
    value: str
    ours: bool = False


@dataclass(frozen=True)
class Seen:
    """A pod's folder: its record; what is there where that differs (None: gone); what no sync knows."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    now: Mapping[str, There | None] = field(default_factory=dict)
    others: Mapping[str, There] = field(default_factory=dict)
    generation: str = ""

    def at(self, path: str) -> There | None:
        """What is at a path."""
        if path in self.now:
            return self.now[path]
        entry = self.entries.get(path)
        return There(entry.kind, entry.value, True) if entry else self.others.get(path)


@dataclass(frozen=True)
class Step:
    """One thing to do in a pod. `put` writes; `note` only records that it is there already; `forget`: it is gone."""

    what: Literal["put", "note", "delete", "forget"]
    path: str
    item: Item | None = None
    value: str = ""


@dataclass(frozen=True)
class Kept:
    """A path that was left as it is in the pod, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Plan:
    """What to do in one pod, in this order. `strangers`: files of a sync from another folder, which stay.

    `unread`: what could not be read here; nothing is done where it is.
    """

    steps: tuple[Step, ...] = ()
    kept: tuple[Kept, ...] = ()
    strangers: int = 0
    unread: tuple[Kept, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of it in one pod. `bytes`: of the files written, all of them verified there. `wrong`: why it failed.

    `shares`: the pod whose folder it has, where it was not asked whether it sees it.
    """

    pod: str
    verdict: Verdict
    way: str = "sync"  # or "sees": it shares the folder of another pod
    files: int = 0
    bytes: int = 0
    deleted: int = 0
    kept: tuple[Kept, ...] = ()
    failed: tuple[Kept, ...] = ()
    strangers: int = 0
    wrong: str = ""
    hint: str = ""
    seconds: float = 0.0
    shares: str = ""
