"""What a kind may look at while it reads: the host, what it is, and what earlier runs left."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from .facts.machine import Machine
from .host import Host
from .model import Step
from .owners import Owners
from .record import Owned
from .resources import make


class View:
    """One look at one host; nothing in it changes the host.

    `owned` is what earlier runs left; `refused` are settings that the kernel refused to change since the host booted:
    trying again would only repeat the refusal.
    """

    def __init__(
        self,
        host: Host,
        machine: Machine,
        owned: Mapping[str, Owned] | None = None,
        refused: frozenset[str] = frozenset(),
    ) -> None:
        self.host, self.machine, self.owned, self.refused = host, machine, owned or {}, refused

    @cached_property
    def owners(self) -> Owners:
        """Everybody else who sets kernel values on this host."""
        return Owners(self.host)

    def now(self, setting: str) -> str | None:
        return make(setting).read(self.host)

    def step(self, setting: str, after: str | None) -> tuple[Step, ...]:
        """The step that makes a setting hold `after`; none where it holds that already."""
        before = self.now(setting)
        return () if before == after else (Step(setting, before, after),)
