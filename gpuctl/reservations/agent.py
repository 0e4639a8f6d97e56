"""The promises of a node to the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpuctl.reservations.rules.reconcile import Observation
from gpuctl.reservations.rules.reports import Order


class NotObeyed(Exception):
    """A node could not do what was ordered; the text says why."""


@dataclass(frozen=True)
class Delivery:
    """A warning that was delivered: number of terminals, and whether the file was written."""

    terminals: int
    file: bool


class NodeAgent(Protocol):
    """A node. It remembers the highest fence of its orders, and raises `NotObeyed` for one that is older."""

    def obey(self, order: Order, person: str) -> None:
        """Give access (PREPARE) or take it (CLEAR, CLEAN_NODE); done when it returns."""

    def observe(self, fence: int) -> Observation:
        """Sessions that exist. OSError or `NotObeyed` if the node cannot be read."""

    def warn(self, person: str, text: str) -> Delivery:
        """Show a warning on the person's terminals, and write it to a file."""
