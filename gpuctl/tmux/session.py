"""A session as values: windows, their panes, and what runs in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pane:
    """A pane: `run` is its program ("" leaves a shell), `size` the percentage of the pane `of` which it gets.

    `context`, `namespace`: what its smart shell starts with, where the kubeconfig has that context.
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
    """A window; `layout` is one of tmux's, by name or as tmux writes it, and counts above the panes' sides."""

    name: str
    panes: tuple[Pane, ...]
    layout: str = ""
    index: int | None = None
    active: bool = False


@dataclass(frozen=True)
class Session:
    """A session: where its panes start, git's settings in repository panes, programs that a restore starts again.

    `template`: the name of the one that all this came from; "" for the configuration's own session.
    """

    directory: str
    windows: tuple[Window, ...]
    git: Mapping[str, str] = field(default_factory=dict)
    restore: tuple[str, ...] = ()
    template: str = ""
