"""Other sessions on the server of tmux-main: its keys and options are theirs too, and are restored when it ends."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.edges.programs import gpuctl_program
from gpuctl.edges.tmux import Server
from gpuctl.tmux.paths import SESSION
from gpuctl.tmux.versions import reload
from gpuctl.tmux.versions.state import State, read

HOOK = "session-closed[97]"
SECONDS = 10  # how long the message is shown
ON_SCREEN = f"gpuctl: keys and looks of this server change until {SESSION} ends"  # tmux cuts longer ones


def remember(server: Server) -> int:
    """Store a running server's keys and options before gpuctl changes them; returns the number of its sessions."""
    if not server.runs():
        return 0
    path, pid = _path(server), _pid(server)
    if _stored(path).get("pid") != pid:  # else they are changed already
        state = read(server)
        plain = {"keys": [[*name, line] for name, line in state.keys.items()]}
        plain["options"] = [[*name, value] for name, value in state.options.items()]
        private(path.parent)
        write_atomically(path, json.dumps({"pid": pid, **plain}))
    return len(server.do("list-sessions").splitlines())


def announce(server: Server, others: int) -> str:
    """Have the server restored when tmux-main ends, and say on its terminals what changes until then."""
    leave = f"{shlex.quote(gpuctl_program())} tmux leave-server >/dev/null 2>&1"
    ended = f"tmux has-session -t ={SESSION} 2>/dev/null || {leave}"
    server.do("set-hook", "-g", HOOK, f'run-shell -b "{ended}"')
    sessions = "another session" if others == 1 else f"{others} other sessions"
    have = "has" if others == 1 else "have"
    text = (
        f"{sessions} of this tmux server {have} the keys and looks of {SESSION} until it ends; "
        "GPUCTL_TMUX_SOCKET=gpuctl keeps them apart"
    )
    for client in server.do("list-clients", "-F", "#{client_name}").splitlines():
        server.try_to("display-message", "-d", str(SECONDS * 1000), "-c", client, ON_SCREEN)
    return text


def leave(server: Server) -> None:
    """Restore the server's keys and options, unless tmux-main is running on it."""
    path = _path(server)
    stored = _stored(path)
    if server.has(SESSION) or not server.runs() or stored.get("pid") != _pid(server):
        return
    keys = {(table, key): line for table, key, line in stored["keys"]}
    reload.put_back(server, State(keys, {(command, name): value for command, name, value in stored["options"]}))
    for name in ("GPUCTL_PROGRAM", "GPUCTL_TMUX_FOLDER"):
        server.do("set-environment", "-gu", name)
    path.unlink(missing_ok=True)


def _path(server: Server) -> Path:
    return state_dir() / "tmux" / f"server-{server.socket}.json"


def _stored(path: Path) -> dict[str, Any]:
    """Return the stored state; empty if there is none or it cannot be read."""
    try:
        stored: dict[str, Any] = json.loads(path.read_text())
        return stored if {"pid", "keys", "options"} <= stored.keys() else {}
    except (OSError, ValueError, AttributeError):
        return {}


def _pid(server: Server) -> str:
    return server.do("display-message", "-p", "#{pid}").strip()
