"""Values that advice consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.domain.findings import Finding

GUIDE = "NCCL user guide, environment variables, {}"
CHEATSHEET = "awsome-distributed-training, efa-cheatsheet.md"


@dataclass(frozen=True)
class Setting:
    """One environment variable; value None means leave it unset. `nodes`: who it is for, empty for all."""

    name: str
    value: str | None
    why: str
    source: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """Settings in the order of their explanation, conflicts with them, and the ports each node leaves out."""

    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...] = ()
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that every rank on every node gets."""
        return {s.name: s.value for s in self.settings if s.value is not None and not s.nodes}


def guide(name: str) -> str:
    """Source of most settings."""
    return GUIDE.format(name)
