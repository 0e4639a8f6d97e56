"""Sync one pod's folder: read its state, decide, send, and wait for its confirmation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuctl.cluster.sync import plan as planning
from gpuctl.cluster.sync.local import KEEPS_CHANGING, SMALL, KeepsChanging, Local, as_sent
from gpuctl.cluster.sync.model import FILE, FOLDER, Item, Kept, Outcome, Plan, PodState, Step
from gpuctl.cluster.sync.plan import Rules
from gpuctl.cluster.sync.stream import PodStream
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.remote.supervisor import frames

FULL = "its disk is full"
TOGETHER = 1 << 17  # bytes of small files sent together


@dataclass(frozen=True)
class SyncRequest:
    """Target folder in the pods; `force`: overwrite changes there; `check`: only report.

    `session`: shared by successive connections, so that one takes the folder over from the one before.
    """

    target: str
    force: bool = False
    check: bool = False
    session: str = ""


class PodSync:
    """Syncs one pod over one stream. `pod_state`: the pod's folder, as far as known."""

    def __init__(self, stream: PodStream, local: Local, request: SyncRequest) -> None:
        self.stream, self.local, self.request = stream, local, request
        self.pod_state = PodState()
        self.generation = ""

    def begin(self) -> None:
        """Read the whole state of the pod's folder."""
        request = self.request
        self.pod_state = self.stream.hello(
            request.target,
            self.local.name,
            self.local.name,
            force=request.force,
            check=request.check,
            session=request.session,
        )

    def differs(self, path: str) -> bool:
        """Return whether the pod's content at a path deviates from its manifest."""
        return path in self.pod_state.deviations

    def plan(self) -> Plan:
        """Decide the actions."""
        scanned = self.local.scanned  # one scan for the whole plan: items and unknown paths must match
        local, rules = (
            scanned.items,
            Rules(self.local.name, partial(self.local.is_unknown, scanned), self.request.force),
        )
        if unknown := planning.unknown(local, self.pod_state):
            others = self.stream.read_states(unknown)
            self.pod_state = replace(self.pod_state, others={**self.pod_state.others, **others})
        hashes = self.local.hashes(planning.to_hash(local, self.pod_state))
        unread = tuple(Kept(path or ".", f"cannot read it here: {why}") for path, why in scanned.unread.items())
        return replace(planning.plan(local, self.pod_state, hashes, rules), unread=unread)

    def carry_out(self, plan: Plan) -> Outcome:
        """Carry out a plan; return the outcome once the pod confirms it. A full disk only accepts deletes."""
        begun = time.monotonic()
        sent: list[Step] = []
        failed: list[Kept] = []
        values: dict[str, tuple[str, Item]] = {}
        self.stream.troubles.clear()
        for group in grouped(plan.steps):
            if not self.stream.full or group[0].what in ("delete", "forget"):
                self._do(group, values, failed)
                sent += group
        done = self.stream.sync()
        self.generation = done["generation"]
        tried = replace(plan, steps=tuple(sent))
        self._settle(tried, values, failed)
        return self._outcome(tried, done, failed, time.monotonic() - begun)

    def _do(self, group: Sequence[Step], values: dict[str, tuple[str, Item]], failed: list[Kept]) -> None:
        first = group[0]
        if _is_small(first):
            batch = self.local.batch(tuple((step.path, step.item) for step in group if step.item))
            self.stream.send(batch.message)
            values.update(batch.sent)
            failed.extend(batch.failed)
        elif _is_file(first):
            self._send_large(first.path, values, failed)
        else:
            self.stream.send(_message(first))

    def _send_large(self, path: str, values: dict[str, tuple[str, Item]], failed: list[Kept]) -> None:
        try:
            for message in self.local.large(path, values):
                self.stream.send(message)
                if self.stream.full:
                    return  # already rejected with an earlier part
        except FileNotFoundError:
            pass  # just deleted: the next scan reports that
        except KeepsChanging:
            failed.append(Kept(path, KEEPS_CHANGING))
        except OSError as error:
            self.stream.send(frames.pack(frames.END, {"value": ""}))
            failed.append(Kept(path, f"cannot read it here: {error.strerror}"))

    def _settle(self, tried: Plan, values: Mapping[str, tuple[str, Item]], failed: list[Kept]) -> None:
        """Update the pod's state. Paths with errors are read again, not guessed."""
        wrong = {kept.path for _, kept in self.stream.troubles} | {kept.path for kept in failed}
        unread = {step.path for step in tried.steps if _is_file(step) and step.path not in values}
        steps = tuple(step for step in tried.steps if step.path not in wrong | unread)
        self.pod_state = planning.after(self.pod_state, replace(tried, steps=steps), values, self.local.name)
        if wrong:
            entries = self.stream.read_states(sorted(wrong))
            self.pod_state = planning.with_entries(self.pod_state, {path: entries.get(path) for path in wrong})

    def _outcome(self, tried: Plan, done: Mapping[str, Any], failed: list[Kept], seconds: float) -> Outcome:
        troubles = self.stream.troubles
        wrong = {kept_path.path for _, kept_path in troubles}
        kept = [*tried.kept, *(Kept(kept_path.path, _CHANGED) for word, kept_path in troubles if word == "changed")]
        failed = [*failed, *(kept_path for word, kept_path in troubles if word in ("failed", "damaged")), *tried.unread]
        outcome = Outcome(
            self.stream.pod,
            Verdict.FAIL if kept or failed else Verdict.OK,
            files=done["files"],
            bytes=done["bytes"],
            deleted=sum(step.what == "delete" and step.path not in wrong for step in tried.steps),
            kept=tuple(kept),
            failed=tuple(failed),
            strangers=tried.strangers,
            seconds=seconds,
        )
        if self.stream.full:
            return replace(outcome, verdict=Verdict.FAIL, wrong=f"{FULL} ({self.stream.full})", hint=_MAKE_ROOM)
        return outcome


_CHANGED = "changed in the pod while it was being synced"
_MAKE_ROOM = "free some space there; the same command then continues"


def grouped(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield steps in order, consecutive small files together: the same groups for all pods that need the same files."""
    group: list[Step] = []
    size = 0
    for step in steps:
        if group and not (_is_small(step) and size < TOGETHER):
            yield group
            group, size = [], 0
        if not _is_small(step):
            yield [step]
            continue
        group.append(step)
        size += step.item.source[0] if step.item else 0
    if group:
        yield group


def _is_file(step: Step) -> bool:
    return step.what == "put" and step.item is not None and step.item.kind == FILE


def _is_small(step: Step) -> bool:
    return _is_file(step) and step.item is not None and step.item.source[0] <= SMALL


def _message(step: Step) -> bytes:
    kinds = {"delete": frames.DELETE, "forget": frames.FORGET, "note": frames.NOTE}
    if step.item is None:
        return frames.pack(kinds[step.what], {"path": step.path})
    item = as_sent(step.item)
    entry = {"path": step.path, "mode": item.mode_in_pod, "source": item.source, "kind": item.kind, "value": step.value}
    if step.what == "note":
        return frames.pack(frames.NOTE, entry)
    return frames.pack(frames.FOLDER if item.kind == FOLDER else frames.LINK, entry)


def unchanged(pod: str, plan: Plan) -> Outcome:
    """Outcome of a plan without actions."""
    verdict = Verdict.FAIL if plan.kept or plan.unread else Verdict.OK
    return Outcome(pod, verdict, kept=plan.kept, failed=plan.unread, strangers=plan.strangers)


def preview(pod: str, plan: Plan) -> Outcome:
    """Outcome of a plan that is not carried out, for --check."""
    puts = [step.item for step in plan.steps if step.what == "put" and step.item and step.item.kind != FOLDER]
    size = sum(item.source[0] for item in puts if item.kind == FILE)
    deleted = sum(step.what == "delete" for step in plan.steps)
    return replace(unchanged(pod, plan), files=len(puts), bytes=size, deleted=deleted)


def failed(pod: str, error: GpuctlError) -> Outcome:
    """Outcome of a pod that could not be synced."""
    return Outcome(pod, Verdict.UNKNOWN, wrong=error.wrong, hint=error.hint)
