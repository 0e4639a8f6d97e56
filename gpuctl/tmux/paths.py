"""Names and paths of the tmux environment: session, server, and the current version's folder."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from gpuctl.core.paths import config_dir
from gpuctl.core.settings import Settings
from gpuctl.edges.tmux import Server

SESSION = "tmux-main"
TEMPLATE = Path(__file__).with_name("template")


def main_server() -> Server:
    """Return the server of `tmux-main`: $GPUCTL_TMUX_SOCKET, or the user's default server."""
    return Server(os.environ.get("GPUCTL_TMUX_SOCKET") or "default")


def repository(name: str, base: str, user_settings: Settings) -> Path:
    """Return a repository's folder: from the settings, else below the session's directory."""
    return user_settings.repositories.get(name, Path(base) / name).expanduser()


def ending(server: Server) -> str:
    """Return the command that ends the session."""
    named = [] if server.socket == "default" else ["-L", server.socket]
    return shlex.join(["tmux", *named, "kill-session", "-t", SESSION])


def current() -> Path:
    """Return the link to the current version's folder; promoting another version replaces it."""
    return config_dir() / "tmux" / "current"
