"""A session as a value: windows, panes, and their programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pane:
    """A pane: `run` is its command (empty for a shell), `size` its percentage of the pane `of`.

    `context`, `namespace`: what its smart shell starts with.
    """

    title: str = ""
    directory: str = ""
    repository: str = ""
    run: tuple[str, ...] = ()
    install: str = ""
    of: str = ""
    side: str = "below"
    size: int = 50
    active: bool = False
    context: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class Window:
    """A window; `layout` is a tmux layout, by name or in tmux's notation, and overrides the panes' sides."""

    name: str
    panes: tuple[Pane, ...]
    layout: str = ""
    index: int | None = None
    active: bool = False


@dataclass(frozen=True)
class Session:
    """A session: start directory, windows, git settings for repository panes, programs that a restore restarts.

    `template`: the template it was built from; "" for the configuration's own session.
    """

    directory: str
    windows: tuple[Window, ...]
    git: Mapping[str, str] = field(default_factory=dict)
    restore: tuple[str, ...] = ()
    template: str = ""
