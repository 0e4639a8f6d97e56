"""What a name of gpuctl's own means: a check, a setting, a variable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A row of data/checks.yml or data/settings.yml. `key`: "audit/gpu-count", its family and its name."""

    key: str
    meaning: str
    source: str
    action: str = ""
    read_back: str = ""

    @property
    def family(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]
