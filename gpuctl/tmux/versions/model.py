"""A version and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class Version:
    """A version of the configuration: a folder with its number."""

    number: int
    folder: Path

    @property
    def name(self) -> str:
        return f"v{self.number}"
