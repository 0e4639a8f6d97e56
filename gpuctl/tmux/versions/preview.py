"""Run a version on its own tmux server: its session above, a feedback pane below."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.programs import gpuctl_program
from gpuctl.edges.tmux import Server
from gpuctl.tmux import build
from gpuctl.tmux.paths import main_server
from gpuctl.tmux.resize import remember
from gpuctl.tmux.versions import check, feedback, store
from gpuctl.tmux.versions.model import Version
from gpuctl.tmux.versions.state import Changed

SESSION = "tmux-preview"
SHARE = "20%"
LOADED = "@gpuctl_loaded"
VERSION = "GPUCTL_TMUX_PREVIEW"  # names the version in the environment of programs inside


def server() -> Server:
    """Return the preview's server, always a different one than tmux-main's."""
    main = main_server().socket
    return Server("gpuctl-preview" if main == "default" else f"{main}-preview")


def log() -> Path:
    return store.root() / "feedback.log"


def attaching() -> list[str]:
    return server().argv("attach-session", "-t", f"={SESSION}")


@dataclass(frozen=True)
class Preview:
    """A running preview; `was_running`: it was started earlier."""

    version: Version
    was_running: bool


def start(name: str = "") -> Preview:
    """Start the preview of a version (default: newest); one of the same version continues, another one ends."""
    version = store.named(name or "newest", "preview")
    if running() == version.name:
        return Preview(version, was_running=True)
    report = check.folder(version.folder)
    if report.mistakes:
        wrong = "\n".join(["it has mistakes", *(f"  {mistake}" for mistake in report.mistakes)])
        raise InvalidInput(f"preview {version.name}", wrong, f"fix these in {version.folder}")
    close()
    private_server = Server(server().socket, environment={VERSION: version.name})
    try:
        build.build(private_server, version.folder, name=SESSION)
        remember_changes(report.changes)
        _feedback_pane(version)
    except GpuctlError:
        close()
        raise
    feedback.begin(log(), version.name)
    return Preview(version, was_running=False)


def running() -> str:
    """Return the name of the previewed version; "" if there is no preview."""
    if not server().has(SESSION):
        return ""
    return server().try_to("show-environment", "-g", VERSION).stdout.strip().partition("=")[2]


def close() -> None:
    """End the preview's server."""
    if server().runs():
        server().do("kill-server")


def remember_changes(changes: Changed) -> None:
    """Store what the version changed on the preview's server, for a reload."""
    value = json.dumps([sorted(changes.keys), sorted(changes.options)])
    server().do("set-option", "-s", LOADED, value)


def loaded() -> Changed:
    """Return what the version changed on the preview's server."""
    keys, options = json.loads(server().do("show-options", "-sv", LOADED))
    return Changed(frozenset((a, b) for a, b in keys), frozenset((a, b) for a, b in options))


def _feedback_pane(version: Version) -> None:
    command = shlex.join([gpuctl_program(), "tmux", "feedback", "pane"])
    # If it cannot even start, its message stays readable.
    held_open = f"{command} || {{ echo 'press Enter to close this pane'; read -r _; }}"
    first = f"={SESSION}:^"
    split = ("split-window", "-f", "-v", "-l", SHARE, "-t", first, "-c", str(version.folder), "-P", "-F", "#{pane_id}")
    pane = server().do(*split, "sh", "-c", held_open).strip()
    dress(pane, f"feedback on {version.name}")


def dress(pane: str, title: str) -> None:
    """Give the feedback pane its title and a fixed size."""
    server().do("select-pane", "-t", pane, "-T", title)
    server().do("set-option", "-p", "-t", pane, "@gpuctl_title", title)
    server().do("select-window", "-t", pane)
    remember(server(), pane)


def rebuild(version: Version, pane: str) -> None:
    """Rebuild the session around the feedback pane from the current session.yml."""
    rebuilt, preview_server = f"{SESSION}-next", server()
    wide, high = preview_server.do("display-message", "-p", "-t", pane, "#{window_width} #{window_height}").split()
    build.build(preview_server, version.folder, name=rebuilt, size=(int(wide), int(high) + build.STATUS_BAR))
    # In rows: a percentage would refer to the neighbouring pane, not to the window.
    rows = str(max(2, int(high) * int(SHARE.rstrip("%")) // 100))
    preview_server.do("join-pane", "-f", "-v", "-l", rows, "-s", pane, "-t", f"={rebuilt}:^")
    for client in preview_server.do("list-clients", "-F", "#{client_name}").splitlines():
        preview_server.try_to("switch-client", "-c", client, "-t", f"={rebuilt}")
    preview_server.do("kill-session", "-t", f"={SESSION}")
    preview_server.do("rename-session", "-t", f"={rebuilt}", SESSION)
    dress(pane, f"feedback on {version.name}")
