"""Input of the kinds while they read: the host, its facts, and the records of earlier runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from .facts.machine import Machine
from .host import Host
from .model import Step
from .owners import Owners
from .record import Owned
from .remembered import Remembered
from .resources import make


class HostSnapshot:
    """Read-only access to one host during one visit.

    `owned` are the settings of earlier runs; `refused` those that the kernel has refused to change since the boot,
    which are not tried again; `reverted_restarts` the restarts that did not work, see record.py. `last_run`: the run
    before this visit, see lock.py.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is read once and shared
        self,
        host: Host,
        machine: Machine,
        owned: Mapping[str, Owned] | None = None,
        refused: frozenset[str] = frozenset(),
        reverted_restarts: Mapping[str, Mapping[str, str | None]] | None = None,
        last_run: str | None = None,
    ) -> None:
        self.host, self.machine, self.owned, self.refused = host, machine, owned or {}, refused
        self.reverted_restarts = reverted_restarts or {}
        self.last_run = last_run

    @cached_property
    def owners(self) -> Owners:
        """Other owners of kernel values on this host."""
        return Owners(self.host)

    @cached_property
    def unchanging(self) -> Host:
        """The host with each answer of nvidia-smi read once, as that program is slow; nothing changes meanwhile."""
        return self.host if isinstance(self.host, Remembered) else Remembered(self.host)

    def now(self, setting: str) -> str | None:
        return make(setting).read(self.unchanging if setting.startswith("gpu:") else self.host)

    def step(self, setting: str, after: str | None) -> tuple[Step, ...]:
        """The step that changes a setting to `after`; empty if it has that value."""
        before = self.now(setting)
        return () if before == after else (Step(setting, before, after),)
