"""Bring one pod's folder to how it is here: ask how it stands, decide, send, and hear that all of it is there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuctl.cluster.sync import plan as planning
from gpuctl.cluster.sync.local import MOVES, SMALL, Local, Moving, as_sent
from gpuctl.cluster.sync.model import FILE, FOLDER, Item, Kept, Outcome, Plan, Seen, Step
from gpuctl.cluster.sync.plan import Rules
from gpuctl.cluster.sync.stream import PodStream
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import Verdict
from gpuctl.remote.supervisor import frames

FULL = "its disk is full"
TOGETHER = 1 << 17  # bytes of small files that are sent together


@dataclass(frozen=True)
class Wanted:
    """What is asked: into which folder of the pods, over what changed there, or only to say what it would do.

    `session`: one connection after the other has the same, and takes the folder from the one before.
    """

    target: str
    force: bool = False
    check: bool = False
    session: str = ""


class Bringer:
    """One pod, over one stream. `seen` is how the pod stands, as far as we know."""

    def __init__(self, stream: PodStream, local: Local, wanted: Wanted) -> None:
        self.stream, self.local, self.wanted = stream, local, wanted
        self.seen = Seen()
        self.generation = ""

    def begin(self) -> None:
        """Ask the pod how it stands: all of it."""
        asked = self.wanted
        self.seen = self.stream.hello(
            asked.target,
            self.local.name,
            self.local.name,
            force=asked.force,
            check=asked.check,
            session=asked.session,
        )

    def differs(self, path: str) -> bool:
        """Whether the pod has something else there than its record says."""
        return path in self.seen.now

    def plan(self) -> Plan:
        """What is to be done now."""
        found = self.local.found  # the next one is for the next plan: items and what is spared have to fit together
        here, rules = found.items, Rules(self.local.name, partial(self.local.spared, found), self.wanted.force)
        if unknown := planning.unknown(here, self.seen):
            others = self.stream.look(unknown)
            self.seen = replace(self.seen, others={**self.seen.others, **others})
        hashes = self.local.hashes(planning.to_hash(here, self.seen))
        unread = tuple(Kept(path or ".", f"cannot read it here: {why}") for path, why in found.unread.items())
        return replace(planning.plan(here, self.seen, hashes, rules), unread=unread)

    def carry_out(self, plan: Plan) -> Outcome:
        """Do it, and say what came of it once the pod has all of it. A full disk takes nothing, but gives up things."""
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
            self.stream.tell(batch.message)
            values.update(batch.sent)
            failed.extend(batch.failed)
        elif _is_file(first):
            self._send_large(first.path, values, failed)
        else:
            self.stream.tell(_message(first))

    def _send_large(self, path: str, values: dict[str, tuple[str, Item]], failed: list[Kept]) -> None:
        try:
            for message in self.local.large(path, values):
                self.stream.tell(message)
                if self.stream.full:
                    return  # it was refused with what came before
        except FileNotFoundError:
            pass  # it has just gone: the next look at the folder says so
        except Moving:
            failed.append(Kept(path, MOVES))
        except OSError as error:
            self.stream.tell(frames.pack(frames.END, {"value": ""}))
            failed.append(Kept(path, f"cannot read it here: {error.strerror}"))

    def _settle(self, tried: Plan, values: Mapping[str, tuple[str, Item]], failed: list[Kept]) -> None:
        """How the pod stands now. What went wrong there is asked for, not guessed."""
        wrong = {kept.path for _, kept in self.stream.troubles} | {kept.path for kept in failed}
        unread = {step.path for step in tried.steps if _is_file(step) and step.path not in values}
        steps = tuple(step for step in tried.steps if step.path not in wrong | unread)
        self.seen = planning.after(self.seen, replace(tried, steps=steps), values, self.local.name)
        if wrong:
            found = self.stream.look(sorted(wrong))
            self.seen = planning.looked(self.seen, {path: found.get(path) for path in wrong})

    def _outcome(self, tried: Plan, done: Mapping[str, Any], failed: list[Kept], seconds: float) -> Outcome:
        told = self.stream.troubles
        wrong = {each.path for _, each in told}
        kept = [*tried.kept, *(Kept(each.path, _CHANGED) for word, each in told if word == "changed")]
        failed = [*failed, *(each for word, each in told if word in ("failed", "damaged")), *tried.unread]
        found = Outcome(
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
            return replace(found, verdict=Verdict.FAIL, wrong=f"{FULL} ({self.stream.full})", hint=_MAKE_ROOM)
        return found


_CHANGED = "changed in the pod while it was being synced"
_MAKE_ROOM = "make room there; the same command then goes on from here"


def grouped(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Steps in their order, small files that follow each other together: the same for all pods that need the same."""
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
    told = {"path": step.path, "mode": item.mode, "source": item.source, "kind": item.kind, "value": step.value}
    if step.what == "note":
        return frames.pack(frames.NOTE, told)
    return frames.pack(frames.FOLDER if item.kind == FOLDER else frames.LINK, told)


def nothing(pod: str, plan: Plan) -> Outcome:
    """Of a plan that has nothing to do."""
    verdict = Verdict.FAIL if plan.kept or plan.unread else Verdict.OK
    return Outcome(pod, verdict, kept=plan.kept, failed=plan.unread, strangers=plan.strangers)


def would(pod: str, plan: Plan) -> Outcome:
    """What a plan would come to, for a check."""
    puts = [step.item for step in plan.steps if step.what == "put" and step.item and step.item.kind != FOLDER]
    size = sum(item.source[0] for item in puts if item.kind == FILE)
    deleted = sum(step.what == "delete" for step in plan.steps)
    return replace(nothing(pod, plan), files=len(puts), bytes=size, deleted=deleted)


def failed(pod: str, error: GpuctlError) -> Outcome:
    """A pod that could not be brought anything."""
    return Outcome(pod, Verdict.UNKNOWN, wrong=error.wrong, hint=error.hint)
