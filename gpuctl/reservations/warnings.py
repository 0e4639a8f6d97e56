"""Warnings before the end of sessions: their text, and their delivery on all nodes at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from gpuctl.reservations.agent import Delivery, NodeAgent, NotObeyed, PodAgent
from gpuctl.reservations.fan_out import on_all
from gpuctl.reservations.rules import expiry
from gpuctl.reservations.rules.decision import Draft
from gpuctl.reservations.rules.model import Book, Reservation

REWARN_S = 60  # between two tries of a warning that a node did not take


class Warnings:
    """Shows warnings. `silence`: reasons of the nodes that gave no answer in this pass, by their names."""

    def __init__(self, agents: Mapping[str, NodeAgent], silence: Mapping[str, str]) -> None:
        self._agents, self._silence = agents, silence
        self._again_at: dict[tuple[str, int], int] = {}  # reservation, threshold -> when a missed one is tried again

    def show(self, book: Book, now: int) -> list[Callable[[Draft], None]]:
        """Show the warnings that are due; decisions that record each of them."""
        self._again_at = {key: at for key, at in self._again_at.items() if now < at <= now + REWARN_S}
        due = [one for one in expiry.warnings_due(book, now) if (one.reservation, one.minutes) not in self._again_at]
        shown = self._on_nodes([(book.reservations[warning.reservation], warning) for warning in due])
        records = list[Callable[[Draft], None]]()
        for warning in due:
            deliveries = shown[warning.reservation]
            missed = {node: one.missed for node, one in deliveries.items() if one.missed}
            if missed:
                self._again_at[warning.reservation, warning.minutes] = now + REWARN_S
            terminals = sum(one.terminals for one in deliveries.values())
            records.append(partial(expiry.record_warning, warning=warning, terminals=terminals, missed=missed))
        return records

    def _on_nodes(self, due: Sequence[tuple[Reservation, expiry.Notice]]) -> dict[str, dict[str, Delivery]]:
        """Show warnings on all nodes at the same time, while calls are answered: reservation -> node -> delivery."""
        texts: dict[str, list[tuple[Reservation, str]]] = {}
        for row, warning in due:
            cause = "it is idle" if warning.idle else "its time is over"
            verb, minutes = "keep" if warning.idle else "extend", max(1, round(warning.left_s / 60))
            more = f"gpuctl reservations {verb} {row.id} --hours 1"
            text = f"Reservation {row.id} ends in {minutes} min: {cause}. For more time: {more}"
            for node in warning.nodes:
                texts.setdefault(node, []).append((row, text))

        def work(node: str) -> dict[str, Delivery]:
            return {row.id: self._deliver(node, row, text) for row, text in texts[node]}

        shown = {node: one for node, one in on_all(list(texts), work).items() if not isinstance(one, Exception)}
        unknown = Delivery(0, "the reason is unknown")
        return {row.id: {node: shown.get(node, {}).get(row.id, unknown) for node in w.nodes} for row, w in due}

    def _deliver(self, node: str, row: Reservation, text: str) -> Delivery:
        """Show a warning. One that is not delivered to the owner is recorded as that, and tried again.

        Added people see it, too, as long as they have accounts there; in a pod all terminals are reached at once.
        """
        if node in self._silence:
            return Delivery(0, self._silence[node] or "no answer")
        agent = self._agents[node]
        try:
            shown = agent.warn(row.person, text)
            for person in () if isinstance(agent, PodAgent) else row.people[1:]:
                with suppress(NotObeyed, OSError):
                    shown = replace(shown, terminals=shown.terminals + agent.warn(person, text).terminals)
            return shown
        except OSError as error:  # the node answered in this pass: the sessions of others on it go on and end as usual
            return Delivery(0, str(error) or "no answer")
        except NotObeyed as refusal:  # such as an account that does not exist there: the node itself is fine
            return Delivery(0, str(refusal))
