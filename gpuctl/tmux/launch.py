"""Start, restore or attach to the session."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core import settings
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.tmux import Server, version
from gpuctl.tmux import saving, templates
from gpuctl.tmux.build import build
from gpuctl.tmux.paths import SESSION, current, ending, main_server
from gpuctl.tmux.session import Session

__all__ = ["Launched", "attach", "build", "folder", "launch", "restore"]


@dataclass(frozen=True)
class Launched:
    """Result of a launch: `done`, as in "started", and what it means for other sessions of the server, or ""."""

    done: str
    for_others: str = ""

    @property
    def text(self) -> str:
        return "; ".join(filter(None, (self.done, self.for_others)))


def launch(fresh: bool = False, template: str = "") -> Launched:
    """Ensure that the session runs: from its last save, or (`fresh`) from session.yml.

    `template`: the template to build it from. `InvalidInput` if it runs while `fresh` or a template is requested.
    """
    version()
    server, rebuild = main_server(), bool(fresh or template)
    if server.has(SESSION):
        return _keep_running(server, rebuild)
    saved = None if fresh or template else saving.latest()
    session = templates.named(template) if template else saved.session if saved else None
    try:
        for_others = _build(server, session)
    except GpuctlError:
        if server.has(SESSION):  # another terminal started it first
            return _keep_running(server, rebuild)
        raise
    if template:
        return Launched(f"started from the template {template}", for_others)
    return Launched(f"restored from the save of {saved.when}" if saved else "started", for_others)


def _build(server: Server, session: Session | None) -> str:
    """Build the session; returns what it means for other sessions of the server, or ""."""
    from gpuctl.tmux.versions import neighbours

    current_version = folder()
    others = neighbours.remember(server)
    try:
        build(server, current_version, session=session)
    except GpuctlError:
        if others:
            neighbours.leave(server)
        raise
    return neighbours.announce(server, others) if others else ""


def _keep_running(server: Server, rebuild: bool) -> Launched:
    """Keep the running session; `InvalidInput` if a new one was requested."""
    if rebuild:
        raise InvalidInput("rebuild the session", f"{SESSION} is running", f"`{ending(server)}` ends it")
    apply_settings(server)
    return Launched("is running")


def apply_settings(server: Server) -> None:
    """Apply the user's key settings to a running server."""
    state = "on" if settings.load().keys_without_prefix else "off"
    server.do("set-option", "-s", "@gpuctl_keys_without_prefix", state)


def restore(saved: saving.Save) -> Launched:
    """Build the session from a save."""
    version()
    server = main_server()
    if server.has(SESSION):
        raise InvalidInput("restore the session", f"{SESSION} is running", f"`{ending(server)}` ends it")
    return Launched(f"restored from the save of {saved.when}", _build(server, saved.session))


def folder() -> Path:
    """Return the folder of the current version; creates the first version if there is none."""
    if not current().exists():
        from gpuctl.tmux.versions.flow import ensure_first

        ensure_first()
    return current()


def attach() -> None:
    """Attach this terminal to the session; inside the same tmux server, switch the client and return."""
    server, doing = main_server(), f"attach to {SESSION}"
    inside = os.environ.get("TMUX", "").partition(",")[0]
    if inside and inside == server.do("display-message", "-p", "#{socket_path}").strip():
        server.do("switch-client", "-c", _client(server), "-t", f"={SESSION}")
        return
    if inside:
        raise InvalidInput(doing, "this is inside another tmux", "detach first (prefix d)")
    os.execvp("tmux", server.argv("attach-session", "-t", f"={SESSION}"))  # noqa: S606 - the terminal becomes tmux


def _client(server: Server) -> str:
    return server.do("display-message", "-p", "-t", os.environ.get("TMUX_PANE", ""), "#{client_name}").strip()
