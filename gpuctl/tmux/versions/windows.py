"""Change the windows of the running session from one version's session.yml to another's; no program ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpuctl.edges.tmux import Server
from gpuctl.tmux import build, template_meta
from gpuctl.tmux.paths import SESSION
from gpuctl.tmux.session import Pane, Session, Window

Pair = tuple[Window | None, Window | None]


def pairs(before: Session, after: Session) -> list[Pair]:
    """Return the windows that differ, as (before, after), matched by name, else by position; None: no match."""
    old, new = list(enumerate(before.windows)), list(enumerate(after.windows))
    matched: list[Pair] = []
    for same in (_same_name, _same_position):
        for number, window in list(new):
            partner = next((entry for entry in old if same(entry, (number, window))), None)
            if partner:
                old.remove(partner)
                new.remove((number, window))
                matched.append((partner[1], window))
    alone: list[Pair] = [*((None, window) for _, window in new), *((window, None) for _, window in old)]
    return [pair for pair in matched if pair[0] != pair[1]] + alone


def _same_name(first: tuple[int, Window], second: tuple[int, Window]) -> bool:
    return first[1].name == second[1].name


def _same_position(first: tuple[int, Window], second: tuple[int, Window]) -> bool:
    return first[0] == second[0]


def stay(before: Window, after: Window) -> set[str]:
    """Return the titles of the panes that start the same program in both windows."""

    def started(pane: Pane) -> Pane:
        return replace(pane, of="", side="below", size=50, active=False, install="")

    old = {pane.title: started(pane) for pane in before.panes if pane.title}
    return {pane.title for pane in after.panes if old.get(pane.title) == started(pane)}


def change(server: Server, folder: Path, before: Session, after: Session) -> list[str]:
    """Change the windows of the running session; returns what was done, one line per window.

    Panes that both versions have move with their programs. Panes and windows that only the old version has stay.
    """
    if template_meta.load(server, f"={SESSION}:").template:
        return []
    changes = _Changes(server, folder, after)
    return [line for pair in pairs(before, after) for line in changes.window(*pair)]


@dataclass(frozen=True)
class _Changes:
    """Changes the running session to a version's `session`, one window at a time."""

    server: Server
    folder: Path
    session: Session

    def window(self, before: Window | None, after: Window | None) -> Iterator[str]:
        running = self._running(before.name) if before else ""
        if after is None:
            if running and before:
                yield f"window {before.name} is no longer in session.yml; it stays open"
        elif before is None or not running:
            self._create(after)
            yield f"window {after.name} is new"
        elif before == replace(after, name=before.name):
            self.server.do("rename-window", "-t", running, after.name)
            yield f"window {before.name} is now {after.name}"
        else:
            yield self._rebuild(running, before, after)

    def _running(self, name: str) -> str:
        """Return the id of the session's window with this name, or ""."""
        lines = self.server.do("list-windows", "-t", f"={SESSION}:", "-F", "#{window_id} #{window_name}").splitlines()
        return next((line.partition(" ")[0] for line in lines if line.partition(" ")[2] == name), "")

    def _create(self, window: Window) -> None:
        first = build.add_window(self.server, self.folder, self.session, window, {})
        index = self.session.windows.index(window) if window.index is None else window.index
        self.server.try_to("move-window", "-d", "-s", first, "-t", f"={SESSION}:{index}")  # unless another is there

    def _rebuild(self, running: str, before: Window, after: Window) -> str:
        """Create the new window, move the panes that stay into it, and put it in the old one's place."""
        lines = self.server.do("list-panes", "-t", running, "-F", "#{pane_id}\t#{@gpuctl_title}").splitlines()
        panes = {title: pane for pane, _, title in (line.partition("\t") for line in lines)}
        moving = {title: panes[title] for title in stay(before, after) if title in panes}
        place = self.server.do("display-message", "-p", "-t", running, "#{window_index} #{window_active}")
        index, active = place.split()
        # Keeps the old window, and so its place, until the new one is complete.
        holder = ("split-window", "-d", "-f", "-l", "1", "-t", running, "-P", "-F", "#{pane_id}", "sleep 600")
        held = self.server.do(*holder).strip()
        first = build.add_window(self.server, self.folder, self.session, after, moving)
        self.server.do("swap-window", "-d", "-s", first, "-t", f"={SESSION}:{index}")
        if active == "1":
            self.server.do("select-window", "-t", first)
        self.server.do("kill-pane", "-t", held)
        if len(moving) == len(lines):
            return f"window {after.name} is rebuilt"
        self.server.do("rename-window", "-t", running, f"{before.name}-old")
        return f"window {after.name} is rebuilt; window {before.name}-old has the panes that session.yml no longer has"
