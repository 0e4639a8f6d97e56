"""A version of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class Version:
    """A numbered version folder."""

    number: int
    folder: Path

    @property
    def name(self) -> str:
        return f"v{self.number}"
