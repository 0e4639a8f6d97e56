"""Where to show a preview, and which version is in use."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence

from gpuctl.edges import terminal
from gpuctl.tmux.versions import preview, store
from gpuctl.tmux.versions.terminals import Show, choose


def choose_target(detached: bool, on_this_terminal: bool) -> Show:
    """Return how to show the preview; `on_this_terminal` uses this terminal, also inside tmux."""
    if detached:
        return Show("detached", why="as requested")
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if on_this_terminal:
        return Show("here") if on_terminal else Show("detached", why="there is no terminal")
    return choose(command(), os.environ, platform.system(), terminal.has, on_terminal)


def command() -> list[str]:
    """Return the command that attaches a new window; a terminal program may drop the environment."""
    places = {name: os.environ[name] for name in ("TMUX_TMPDIR",) if name in os.environ}
    prefix = ["env", "-u", "TMUX", *(f"{name}={value}" for name, value in places.items())]
    return [*prefix, *preview.attaching()]


def typed(argv: Sequence[str]) -> str:
    return shlex.join(argv)


def version_in_use() -> str:
    """Return the version in use here: the previewed one inside a preview, else the current; "" if none."""
    now = store.current()
    return os.environ.get(preview.VERSION) or (now.name if now else "")
