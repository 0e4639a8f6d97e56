"""Restore the proportions of a window's panes after its size changed."""

from __future__ import annotations

import os
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.tmux import THEN, Server
from gpuctl.tmux import layout

FIELDS = (
    "window_id",
    "window_zoomed_flag",
    "window_width",
    "window_height",
    "window_layout",
    "@gpuctl_size",
    "@gpuctl_layout",
)


def current_server(doing: str, hint: str) -> Server:
    """Return the server that this process runs in; `InvalidInput` with this text outside tmux."""
    inside = os.environ.get("TMUX", "").partition(",")[0]
    if not inside:
        raise InvalidInput(doing, "this is not inside tmux", hint)
    return Server(Path(inside).name)


def fit(server: Server) -> None:
    """Resize the panes of every window whose size differs from that of its known layout."""
    form = "\t".join(f"#{{{name}}}" for name in FIELDS)
    for line in server.do("list-windows", "-a", "-F", form).splitlines():
        window, zoomed, width, height, now, size, stored = line.split("\t")
        if zoomed == "0" and size != f"{width}x{height}":
            desired = fitting(stored, now, int(width), int(height)) or now
            # The size as it was read: if it changed again since, another call follows.
            window_options = (("@gpuctl_layout", desired), ("@gpuctl_size", f"{width}x{height}"))
            noted = [
                word for name, value in window_options for word in (THEN, "set-option", "-w", "-t", window, name, value)
            ]
            server.do("select-layout", "-t", window, desired, *noted)


def fitting(stored: str, now: str, width: int, height: int) -> str:
    """Return the stored layout scaled to the window's size; "" if the panes changed or no layout is stored."""
    before, after = layout.parse(stored), layout.parse(now)
    if before is None or after is None or before.panes != after.panes:
        return ""
    return layout.written(layout.scaled(before, width, height))


def remember(server: Server, window: str) -> None:
    """Store a window's layout; tmux.conf stores it again whenever panes change at the same window size."""
    for name, value in (("layout", "#{window_layout}"), ("size", "#{window_width}x#{window_height}")):
        server.do("set-option", "-wF", "-t", window, f"@gpuctl_{name}", value)
