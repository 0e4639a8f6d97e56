"""Decide what to do in a pod, from what is here, what the pod has and what its record says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpuctl.cluster.sync.model import BLOCKED, FILE, FOLDER, UNREADABLE, Entry, Item, Kept, Plan, Seen, Step, There


@dataclass(frozen=True)
class Rules:
    """`source`: the folder here, by its full name; `spared`: paths of which nothing is said here, so they stay.

    `force`: over what was changed in the pod, too, and away with what a sync from another folder put there.
    """

    source: str
    spared: Callable[[str], bool] = lambda _: False
    force: bool = False


def unknown(here: Mapping[str, Item], seen: Seen) -> list[str]:
    """Paths that no record knows: the pod has to be asked what is there."""
    return [path for path in here if path not in seen.entries and path not in seen.others]


def to_hash(here: Mapping[str, Item], seen: Seen) -> list[str]:
    """Files here whose hash decides: the pod has a file there, and times do not already say that it is this one."""
    return [path for path, item in here.items() if item.kind == FILE and _hash_decides(path, item, seen)]


def _hash_decides(path: str, item: Item, seen: Seen) -> bool:
    there, entry = seen.at(path), seen.entries.get(path)
    if there is None or there.kind != FILE:
        return False
    return path in seen.now or entry is None or entry.kind != FILE or entry.source != item.source


def plan(here: Mapping[str, Item], seen: Seen, hashes: Mapping[str, str], rules: Rules) -> Plan:
    """What to do. `hashes`: of those files that `to_hash` names."""
    work = _Work(seen, hashes, rules)
    for path in sorted(here, key=lambda path: (path.count("/"), path)):
        work.wanted(path, here[path])
    for path, entry in seen.entries.items():
        if path not in here and not rules.spared(path):
            work.gone(path, entry)
    deepest_first = sorted(work.deletes, key=lambda path: (-path.count("/"), path))
    early = [path for path in deepest_first if _in_the_way(path, here)]
    late = [path for path in deepest_first if not _in_the_way(path, here)]
    steps = [*(Step("delete", path) for path in early), *work.steps, *(Step("delete", path) for path in late)]
    return Plan(tuple(steps), tuple(work.kept), work.strangers)


def _in_the_way(path: str, here: Mapping[str, Item]) -> bool:
    """Whether it has to go first, because a folder that it is in becomes something else."""
    parts = path.split("/")
    above = (here.get("/".join(parts[:count])) for count in range(1, len(parts)))
    return any(item is not None and item.kind != FOLDER for item in above)


class _Work:
    """Collects steps."""

    def __init__(self, seen: Seen, hashes: Mapping[str, str], rules: Rules) -> None:
        self.seen, self.hashes, self.rules = seen, hashes, rules
        self.steps: list[Step] = []
        self.deletes: list[str] = []
        self.kept: list[Kept] = []
        self.strangers = 0
        self.closed: set[str] = set()  # folders that cannot be made: nothing can be put below them

    def wanted(self, path: str, item: Item) -> None:
        """Something that is here. What is above it has been decided."""
        above = path.rpartition("/")[0]
        if above in self.closed:
            self.closed.add(path)
            return
        entry, there = self.seen.entries.get(path), self.seen.at(path)
        value = self._value(path, item, entry)
        if there is None or there.kind == BLOCKED:  # what blocks it is dealt with above it
            self.steps.append(Step("put", path, item, value))
        elif (there.kind, there.value) == (item.kind, value):
            if entry is None or _differs(entry, item, value):
                self.steps.append(Step("note", path, item, value))
        elif (there.ours or self.rules.force) and not self._holds_others(path, there):
            self.steps.append(Step("put", path, item, value))
        else:
            self.kept.append(Kept(path, _why(entry, there)))
            self.closed.add(path)

    def _value(self, path: str, item: Item, entry: Entry | None) -> str:
        if item.kind != FILE:
            return item.to
        return self.hashes.get(path) or (entry.value if entry and entry.source == item.source else "")

    def _holds_others(self, path: str, there: There) -> bool:
        """A folder gives way only where a sync made it; the pod then removes it only if it is empty."""
        entry = self.seen.entries.get(path)
        return there.kind == FOLDER and not (entry is not None and entry.put)

    def gone(self, path: str, entry: Entry) -> None:
        """Something that is no longer here, or never was."""
        there = self.seen.at(path)
        if there is None or there.kind == BLOCKED or not entry.put:
            self.steps.append(Step("forget", path))
        elif entry.by != self.rules.source and not self.rules.force:
            self.strangers += 1
        elif there.ours or (self.rules.force and there.kind != FOLDER):
            self.deletes.append(path)
        else:
            what = "cannot be read" if there.kind == UNREADABLE else "changed"
            self.kept.append(Kept(path, f"{what} in the pod, and gone here"))


def _differs(entry: Entry, item: Item, value: str) -> bool:
    return (entry.kind, entry.value, entry.mode, entry.source) != (item.kind, value, item.mode, item.source)


def _why(entry: Entry | None, there: There) -> str:
    if there.kind == FOLDER:
        return "the pod has a folder there"
    if there.kind == UNREADABLE:
        return "cannot be read in the pod"
    return "there before any sync, and different" if entry is None else "changed in the pod since the last sync"


def looked(seen: Seen, found: Mapping[str, There | None]) -> Seen:
    """How the pod stands, with what was just seen there at some paths (None: nothing)."""
    now = {path: there for path, there in seen.now.items() if path not in found}
    others = {path: there for path, there in seen.others.items() if path not in found}
    for path, there in found.items():
        entry = seen.entries.get(path)
        if entry is None and there is not None:
            others[path] = there
        elif entry is not None and (there is None or (there.kind, there.value) != (entry.kind, entry.value)):
            now[path] = there
    return replace(seen, now=now, others=others)


def after(seen: Seen, done: Plan, values: Mapping[str, tuple[str, Item]], by: str) -> Seen:
    """How the pod stands once that was done. `values`: hash and times of the files as they were sent."""
    entries, now, others = dict(seen.entries), dict(seen.now), dict(seen.others)
    for step in done.steps:
        now.pop(step.path, None)
        others.pop(step.path, None)
        if step.what in ("delete", "forget") or step.item is None:
            entries.pop(step.path, None)
            continue
        value, item = values.get(step.path, (step.value, step.item))
        old = entries.get(step.path)
        put = step.what == "put" or bool(old and old.put and (old.kind, old.value) == (item.kind, value))
        entries[step.path] = Entry(item.kind, value, item.mode, item.source, by, put)
    return Seen(entries, now, others, seen.generation)
