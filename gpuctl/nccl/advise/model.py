"""What advice is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.domain.findings import Finding

GUIDE = "NCCL user guide, environment variables, {}"
CHEATSHEET = "awsome-distributed-training, efa-cheatsheet.md"


@dataclass(frozen=True)
class Setting:
    """A variable of a run's environment; value None: leave it unset. `nodes`: whom it is for, empty for all."""

    name: str
    value: str | None
    why: str
    source: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """Settings in the order they are explained, what stands against them, and each node's ports that are left out."""

    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...] = ()
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What every rank on every node gets."""
        return {s.name: s.value for s in self.settings if s.value is not None and not s.nodes}


def guide(name: str) -> str:
    """The source of most settings."""
    return GUIDE.format(name)
