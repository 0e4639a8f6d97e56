"""Popups of tmux: output is paged, as a popup closes with its command; what lasts gets a window, as one blocks tmux."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuctl.edges import programs
from gpuctl.edges.kube import kubectl

# A popup has no scrollback. `less` waits for q even if everything fits, as the popup closes with it.
PAGED = ("sh", "-c", '"$@" 2>&1 | LESS= less -R "-P q closes this, arrows and space scroll"', "sh")


def is_popup() -> bool:
    """True if this command runs in a popup of tmux; scripts/ask.sh sets the variable."""
    return "GPUCTL_POPUP" in os.environ


def show(argv: Sequence[str], folder: str | None = None) -> int:
    """Show a program's output until the user closes it; returns its exit status, or that of the pager."""
    if not sys.stdin.isatty():
        return kubectl.show(argv, folder)
    if programs.installed("less"):
        return kubectl.show([*PAGED, *argv], folder)
    code = kubectl.show(argv, folder)
    input("\nEnter closes this ")
    return code


def open_window(name: str, arguments: Sequence[str]) -> bool:
    """Run `gpuctl kube WORD...` in a tmux window, for the pane of this popup; False outside of a popup."""
    pane, folder = os.environ.get("GPUCTL_PANE", ""), os.environ.get("GPUCTL_TMUX_FOLDER", "")
    script = Path(folder) / "scripts/window.sh"
    if not is_popup() or not script.is_file():
        return False
    session = (kubectl.tmux("display-message", "-p", "-t", pane, "#{session_id}") or "").strip()
    return bool(session) and kubectl.output_of(["sh", str(script), name, pane, session, *arguments]) is not None
