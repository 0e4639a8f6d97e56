"""Where a preview is shown, and which version is in use where this runs."""

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
    """How to show the preview here; `here` wants this terminal, also inside tmux."""
    if detached:
        return Show("detached", why="as you asked")
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if on_this_terminal:
        return Show("here") if on_terminal else Show("detached", why="this runs on no terminal")
    return choose(command(), os.environ, platform.system(), terminal.has, on_terminal)


def command() -> list[str]:
    """What attaches a new window; a terminal program may not pass its environment on."""
    places = {name: os.environ[name] for name in ("TMUX_TMPDIR",) if name in os.environ}
    prefix = ["env", "-u", "TMUX", *(f"{name}={value}" for name, value in places.items())]
    return [*prefix, *preview.attaching()]


def typed(argv: Sequence[str]) -> str:
    return shlex.join(argv)


def version_in_use() -> str:
    """The name of the version in use where this runs: the previewed one in a preview, else the current; "" for none."""
    now = store.current()
    return os.environ.get(preview.VERSION) or (now.name if now else "")
