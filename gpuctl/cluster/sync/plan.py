"""Decide the actions in a pod from the local folder, the pod's folder, and its manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpuctl.cluster.sync.model import (
    BLOCKED,
    FILE,
    FOLDER,
    UNREADABLE,
    Entry,
    Item,
    Kept,
    Plan,
    PodEntry,
    PodState,
    Step,
)


@dataclass(frozen=True)
class Rules:
    """`source`: full name of the local folder; `is_unknown`: paths about which nothing is known locally, so they stay.

    `force`: overwrite changes made in the pod, and delete files of a sync from another folder.
    """

    source: str
    is_unknown: Callable[[str], bool] = lambda _: False
    force: bool = False


def unknown(local: Mapping[str, Item], pod_state: PodState) -> list[str]:
    """Paths in no manifest: the pod must be asked about them."""
    return [path for path in local if path not in pod_state.entries and path not in pod_state.others]


def to_hash(local: Mapping[str, Item], pod_state: PodState) -> list[str]:
    """Local files whose hash decides: the pod has a file there, and times do not prove it identical."""
    return [path for path, item in local.items() if item.kind == FILE and _hash_decides(path, item, pod_state)]


def _hash_decides(path: str, item: Item, pod_state: PodState) -> bool:
    remote, entry = pod_state.at(path), pod_state.entries.get(path)
    if remote is None or remote.kind != FILE:
        return False
    return path in pod_state.deviations or entry is None or entry.kind != FILE or entry.source != item.source


def plan(local: Mapping[str, Item], pod_state: PodState, hashes: Mapping[str, str], rules: Rules) -> Plan:
    """Decide the actions. `hashes`: of the files that `to_hash` names."""
    work = _Work(pod_state, hashes, rules)
    for path in sorted(local, key=lambda path: (path.count("/"), path)):
        work.add_local(path, local[path])
    for path, entry in pod_state.entries.items():
        if path not in local and not rules.is_unknown(path):
            work.add_deleted(path, entry)
    deepest_first = sorted(work.deletes, key=lambda path: (-path.count("/"), path))
    early = [path for path in deepest_first if _blocks(path, local)]
    late = [path for path in deepest_first if not _blocks(path, local)]
    steps = [*(Step("delete", path) for path in early), *work.steps, *(Step("delete", path) for path in late)]
    return Plan(tuple(steps), tuple(work.kept), work.strangers)


def _blocks(path: str, local: Mapping[str, Item]) -> bool:
    """Return whether a path must be deleted first because a folder above it becomes something else."""
    parts = path.split("/")
    above = (local.get("/".join(parts[:count])) for count in range(1, len(parts)))
    return any(item is not None and item.kind != FOLDER for item in above)


class _Work:
    """Collects the steps."""

    def __init__(self, pod_state: PodState, hashes: Mapping[str, str], rules: Rules) -> None:
        self.pod_state, self.hashes, self.rules = pod_state, hashes, rules
        self.steps: list[Step] = []
        self.deletes: list[str] = []
        self.kept: list[Kept] = []
        self.strangers = 0
        self.closed: set[str] = set()  # folders that cannot be created: nothing can be written below them

    def add_local(self, path: str, item: Item) -> None:
        """Plan a local path. Paths above it are already planned."""
        above = path.rpartition("/")[0]
        if above in self.closed:
            self.closed.add(path)
            return
        entry, remote = self.pod_state.entries.get(path), self.pod_state.at(path)
        value = self._value(path, item, entry)
        if remote is None or remote.kind == BLOCKED:  # the blocking path above it is already planned
            self.steps.append(Step("put", path, item, value))
        elif (remote.kind, remote.value) == (item.kind, value):
            if entry is None or _differs(entry, item, value):
                self.steps.append(Step("note", path, item, value))
        elif (remote.ours or self.rules.force) and not self._holds_others(path, remote):
            self.steps.append(Step("put", path, item, value))
        else:
            self.kept.append(Kept(path, _why(entry, remote)))
            self.closed.add(path)

    def _value(self, path: str, item: Item, entry: Entry | None) -> str:
        if item.kind != FILE:
            return item.to
        return self.hashes.get(path) or (entry.value if entry and entry.source == item.source else "")

    def _holds_others(self, path: str, remote: PodEntry) -> bool:
        """A folder is replaced only if a sync created it; the pod then removes it only if it is empty."""
        entry = self.pod_state.entries.get(path)
        return remote.kind == FOLDER and not (entry is not None and entry.put)

    def add_deleted(self, path: str, entry: Entry) -> None:
        """Plan a path that no longer exists locally, or never did."""
        remote = self.pod_state.at(path)
        if remote is None or remote.kind == BLOCKED or not entry.put:
            self.steps.append(Step("forget", path))
        elif entry.by != self.rules.source and not self.rules.force:
            self.strangers += 1
        elif remote.ours or (self.rules.force and remote.kind != FOLDER):
            self.deletes.append(path)
        else:
            what = "cannot be read" if remote.kind == UNREADABLE else "changed"
            self.kept.append(Kept(path, f"{what} in the pod, and deleted here"))


def _differs(entry: Entry, item: Item, value: str) -> bool:
    return (entry.kind, entry.value, entry.mode, entry.source) != (item.kind, value, item.mode_in_pod, item.source)


def _why(entry: Entry | None, remote: PodEntry) -> str:
    if remote.kind == FOLDER:
        return "the pod has a folder there"
    if remote.kind == UNREADABLE:
        return "cannot be read in the pod"
    return "existed before any sync, and differs" if entry is None else "changed in the pod since the last sync"


def with_entries(pod_state: PodState, entries: Mapping[str, PodEntry | None]) -> PodState:
    """The pod's state, updated with entries just read at some paths (None: nothing there)."""
    deviations = {path: remote for path, remote in pod_state.deviations.items() if path not in entries}
    others = {path: remote for path, remote in pod_state.others.items() if path not in entries}
    for path, remote in entries.items():
        entry = pod_state.entries.get(path)
        if entry is None and remote is not None:
            others[path] = remote
        elif entry is not None and (remote is None or (remote.kind, remote.value) != (entry.kind, entry.value)):
            deviations[path] = remote
    return replace(pod_state, deviations=deviations, others=others)


def after(pod_state: PodState, done: Plan, values: Mapping[str, tuple[str, Item]], actor: str) -> PodState:
    """The pod's state after a plan. `values`: hash and times of the files as they were sent."""
    entries, deviations, others = dict(pod_state.entries), dict(pod_state.deviations), dict(pod_state.others)
    for step in done.steps:
        deviations.pop(step.path, None)
        others.pop(step.path, None)
        if step.what in ("delete", "forget") or step.item is None:
            entries.pop(step.path, None)
            continue
        value, item = values.get(step.path, (step.value, step.item))
        old = entries.get(step.path)
        put = step.what == "put" or bool(old and old.put and (old.kind, old.value) == (item.kind, value))
        entries[step.path] = Entry(item.kind, value, item.mode_in_pod, item.source, actor, put)
    return PodState(entries, deviations, others, pod_state.generation)
