"""Names and places of the tmux environment: its session, its server, and the folder of the current version."""

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
    """The server of `tmux-main`: the user's default one, else the one named by $GPUCTL_TMUX_SOCKET."""
    return Server(os.environ.get("GPUCTL_TMUX_SOCKET") or "default")


def repository(name: str, base: str, user_settings: Settings) -> Path:
    """The folder of a repository: where the settings say, else in the folder where the session's panes start."""
    return user_settings.repositories.get(name, Path(base) / name).expanduser()


def ending(server: Server) -> str:
    """The command that ends the session of a server."""
    named = [] if server.socket == "default" else ["-L", server.socket]
    return shlex.join(["tmux", *named, "kill-session", "-t", SESSION])


def current() -> Path:
    """A link to the folder of the current version; promoting another one swaps it."""
    return config_dir() / "tmux" / "current"
