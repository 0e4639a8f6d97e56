"""Samples of the use of sessions, read from their nodes now and then; those of a restarted service begin again."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpuctl.reservations.agent import NodeSession
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.idle import Activity, Sample, Use, judge, merged, record
from gpuctl.reservations.rules.model import Book, State

EVERY_S = 60


class Samples:
    """Samples of active sessions within the window of the site's limits."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Sample]] = {}
        self._at = 0

    def due(self, book: Book, now: int, silent: Collection[str]) -> dict[str, list[NodeSession]]:
        """Node -> sessions whose use is to be read now; nothing for a site whose idle sessions stay.

        Whoever comes back to a session that is to end must be seen in time, so these are read each time.
        """
        active = list(book.in_state(State.ACTIVE))
        is_early = 0 <= now - self._at < EVERY_S and all(row.idle_at is None for row in active)
        if not book.site.limits.idle_ends or is_early:
            return {}
        due: dict[str, list[NodeSession]] = {}
        for row in active:
            for slot in row.slots:
                if slot.node not in silent:
                    due.setdefault(slot.node, []).append(NodeSession(row.id, row.person, slot.gpus, row.people[1:]))
        return due

    def add(self, book: Book, now: int, uses: Mapping[str, Mapping[str, Use]]) -> None:
        """Take what nodes have answered, by node and reservation; a node without an answer is unknown."""
        self._at = now
        since = now - book.site.limits.idle_window_s - book.site.limits.idle_sample_gap_s
        self._samples = {
            row.id: [
                *(one for one in self._samples.get(row.id, ()) if since <= one.at < now),
                merged(now, [uses.get(slot.node, {}).get(row.id) for slot in row.slots]),
            ]
            for row in book.in_state(State.ACTIVE)
        }

    def judge(self, draft: Draft) -> None:
        """Announce the end of sessions that nobody uses, and withdraw it for the others."""
        limits = draft.book.site.limits
        for row in draft.book.in_state(State.ACTIVE):
            if limits.idle_ends:
                record(draft, row, *judge(row, self._samples.get(row.id, ()), limits, draft.now))
            elif row.idle_at is not None:
                record(draft, row, Activity.BUSY, "idle detection is off")
