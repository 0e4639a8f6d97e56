"""A requested training."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Launcher = Literal["deepspeed", "deepspeed-nossh", "torchrun"]


@dataclass(frozen=True)
class TrainRequest:
    """`processes` (per pod) None: all GPUs of a pod; `nodes` None: all pods."""

    script: str
    args: Sequence[str] = ()
    launcher: Launcher | Literal["auto"] = "auto"
    processes: int | None = None
    nodes: int | None = None
    folder: str = "/workspace"
    variables: Mapping[str, str] = field(default_factory=dict)
    python: str = "python3"

    @property
    def path(self) -> str:
        return posixpath.join(self.folder, self.script)
