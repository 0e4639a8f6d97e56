"""Show a preview in a terminal window or on this terminal, and name the version in use."""

from __future__ import annotations

import os
import platform
import shlex
import sys

from gpuctl.edges import terminal
from gpuctl.tmux.versions import preview, store
from gpuctl.tmux.versions.terminals import Target, choose


def choose_target(detached: bool, on_this_terminal: bool) -> Target:
    """Return where to show the preview; `on_this_terminal` means this terminal, also inside tmux."""
    if detached:
        return Target("detached", why="as requested")
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if on_this_terminal:
        return Target("this terminal") if on_terminal else Target("detached", why="there is no terminal")
    return choose(command(), os.environ, platform.system(), terminal.has, on_terminal)


def command() -> list[str]:
    """Return the command that attaches a new window; a terminal program may drop the environment."""
    variables = {name: os.environ[name] for name in ("TMUX_TMPDIR",) if name in os.environ}
    prefix = ["env", "-u", "TMUX", *(f"{name}={value}" for name, value in variables.items())]
    return [*prefix, *preview.attaching()]


def show(target: Target) -> str:
    """Show the preview; returns why it is not visible, or "" if a window shows it. This terminal becomes tmux."""
    if target.mode == "this terminal":
        terminal.become(preview.attaching())
    return terminal.open_window(target.argv) if target.mode == "window" else target.why


def attach_command() -> str:
    """Return the shell command that attaches a terminal to the preview without gpuctl."""
    return shlex.join(preview.attaching())


def previewed() -> str:
    """Return the name of the previewed version if this process runs inside its preview, else ""."""
    name = os.environ.get(preview.VERSION, "")
    return name if name and preview.running() == name else ""


def version_in_use() -> str:
    """Return the version in use here: the previewed one inside a preview, else the current; "" if none."""
    now = store.current()
    return os.environ.get(preview.VERSION) or (now.name if now else "")
