"""What a bootstrap of this machine came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BootstrapRequest:
    """What the user asked for; `tools` empty means all of them, `remove` names those to take away instead."""

    check: bool = False
    undo: bool = False
    force: bool = False
    strict: bool = False
    tools: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    start_tmux: bool = False
    packages: bool = True


@dataclass(frozen=True)
class BootstrapResult:
    """The module's answer, and the exit code it makes."""

    answer: Mapping[str, Any]
    exit_code: int
