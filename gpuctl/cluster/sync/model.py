"""Values of a sync: local items, a pod's folder, the plan, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuctl.domain.findings import Verdict

# Of a local file: size in bytes, mtime and ctime in ns since 1970.
Source = tuple[int, int, int]
FILE, LINK, FOLDER, BLOCKED, UNREADABLE = "file", "link", "folder", "blocked", "unreadable"


@dataclass(frozen=True)
class Item:
    """A local file, link or folder. `to`: target of a link."""

    kind: str
    mode: int
    source: Source
    to: str = ""

    @property
    def mode_in_pod(self) -> int:
        """The mode with the owner's right to write for the group, too, unless it is private.

        The pods of RDMA and of TCP mode share a group, not a user.
        """
        return self.mode | (self.mode & 0o200) >> 3 if self.mode & 0o040 else self.mode


@dataclass(frozen=True)
class Entry:
    """A path in a pod's manifest. `value`: SHA-256 of a file, or target of a link.

    `by`: the folder it came from; `put`: written by a sync, rather than found identical.
    """

    kind: str
    value: str
    mode: int
    source: Source
    by: str
    put: bool


@dataclass(frozen=True)
class PodEntry:
    """A path in a pod. `ours`: a sync wrote it, although the manifest's last line says otherwise."""

    kind: str
    value: str
    ours: bool = False


@dataclass(frozen=True)
class PodState:
    """A pod's folder: its manifest; deviations from it (None: deleted); paths unknown to any sync."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    deviations: Mapping[str, PodEntry | None] = field(default_factory=dict)
    others: Mapping[str, PodEntry] = field(default_factory=dict)
    generation: str = ""

    def at(self, path: str) -> PodEntry | None:
        """The pod's entry at a path."""
        if path in self.deviations:
            return self.deviations[path]
        entry = self.entries.get(path)
        return PodEntry(entry.kind, entry.value, ours=True) if entry else self.others.get(path)


@dataclass(frozen=True)
class Step:
    """One action in a pod. `put` writes; `note` only records an existing path; `forget`: it is deleted."""

    what: Literal["put", "note", "delete", "forget"]
    path: str
    item: Item | None = None
    value: str = ""


@dataclass(frozen=True)
class Kept:
    """A path that was left unchanged in the pod, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Plan:
    """Actions for one pod, in order. `strangers`: files of a sync from another folder, which stay.

    `unread`: local paths that could not be read; nothing is done there.
    """

    steps: tuple[Step, ...] = ()
    kept: tuple[Kept, ...] = ()
    strangers: int = 0
    unread: tuple[Kept, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Result in one pod. `bytes`: size of the written files, all verified there. `wrong`: why it failed.

    `shares`: the pod whose folder it shares, if the result was not checked.
    """

    pod: str
    verdict: Verdict
    kind: str = "sync"  # or "sees": it shares the folder of another pod
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
