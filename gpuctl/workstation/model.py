"""The request and the result of a bootstrap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BootstrapRequest:
    """The user's request: `tools` empty means all tools; `remove` names the tools to remove instead.

    `start_tmux`, `packages`: None keeps what was chosen in an earlier run.
    """

    check: bool = False
    undo: bool = False
    force: bool = False
    strict: bool = False
    tools: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    start_tmux: bool | None = None
    packages: bool | None = None


@dataclass(frozen=True)
class BootstrapResult:
    """The module's answer and the exit code."""

    answer: Mapping[str, Any]
    exit_code: int
