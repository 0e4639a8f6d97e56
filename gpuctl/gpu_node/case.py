"""All that decides the stack of one host, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.gpu_node.model import HostGpuFacts, StackRequest
from gpuctl.gpu_node.rows import Knowledge


@dataclass(frozen=True)
class Case:
    host: str
    facts: HostGpuFacts
    request: StackRequest
    known: Knowledge

    @property
    def manager(self) -> str:
        """apt or dnf; "" for a distribution that is not known."""
        rows = (row for row in self.known.sets if self.facts.distribution in row.distributions)
        return next((row.manager for row in rows), "")
