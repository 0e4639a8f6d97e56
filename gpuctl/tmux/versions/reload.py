"""Load another version into a running tmux server: completely, or not at all."""

from __future__ import annotations

from pathlib import Path

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.tmux import Server
from gpuctl.tmux.versions import state

SETTING = ("set-option -s", "@gpuctl_keys_without_prefix")
# Set by scripts at any time, not by a configuration.
NOTES = frozenset({("set-option -s", "@gpuctl_fit"), ("set-option -s", "@gpuctl_saver"), SETTING})


def load(server: Server, config: Path, gone: state.Changed, defaults: state.State) -> None:
    """Reset what only the previous version set, then read the configuration."""
    lines = state.commands(defaults, gone)
    if lines:
        state.have(server, lines)
    done = server.try_to("source-file", str(config))
    if done.returncode:
        message = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise GpuctlError(f"reload the tmux server {server.socket}", message)


def put_back(server: Server, before: state.State) -> None:
    """Restore the server's keys and options, and verify them."""
    state.have(server, state.commands(before, _differences(server, before)))
    remaining = _differences(server, before)
    if remaining.keys or remaining.options:
        names = ", ".join(name for _, name in sorted(remaining.keys | remaining.options))
        raise GpuctlError("restore the tmux server", f"these differ: {names}", "restart tmux")


def _differences(server: Server, before: state.State) -> state.Changed:
    changes = state.changed(before, state.read(server))
    return state.Changed(changes.keys, changes.options - NOTES)
