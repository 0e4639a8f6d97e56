"""Build the session on a tmux server from a version folder, with tmux commands only."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from gpuctl.core import settings
from gpuctl.core.errors import GpuctlError
from gpuctl.edges.programs import gpuctl_program
from gpuctl.edges.tmux import Server
from gpuctl.tmux import layout, session_file, template_meta
from gpuctl.tmux.paths import SESSION, repository
from gpuctl.tmux.resize import remember
from gpuctl.tmux.session import Pane, Session, Window

SMALLEST = (80, 24)
STATUS_BAR = 1
SHARE = Path(__file__).with_name("share")


def build(
    server: Server,
    folder: Path,
    name: str = SESSION,
    session: Session | None = None,
    size: tuple[int, int] | None = None,
) -> None:
    """Create the session, from a version folder's session.yml or as passed in; all of it or nothing.

    `size`: columns and rows until a terminal attaches; the default is this terminal's size.
    """
    desired = session or session_file.read(folder / "session.yml")
    builder = _Build(_ready(server, folder), folder, name, desired, settings.load())
    first = builder.start(size or _terminal())  # if this fails, an existing session stays as it is
    try:
        builder.windows(first)
    except GpuctlError:
        builder.server.try_to("kill-session", "-t", f"={name}")
        raise
    builder.options()


def add_window(server: Server, folder: Path, session: Session, window: Window, panes: Mapping[str, str]) -> str:
    """Create a window at a free index of the running session; returns its first pane.

    `panes`: title -> id of running panes that move into it, with their programs.
    """
    return _Build(server, folder, SESSION, session, settings.load(), panes).add(window)


def _terminal() -> tuple[int, int]:
    size = shutil.get_terminal_size(SMALLEST)
    return max(size.columns, SMALLEST[0]), max(size.lines, SMALLEST[1])


def _ready(server: Server, folder: Path) -> Server:
    """Return the server with the configuration loaded, or set to load when it starts."""
    path = server.environment.get("GPUCTL_PROGRAM") or gpuctl_program()
    config, variables = str(folder / "tmux.conf"), {"GPUCTL_PROGRAM": path}
    if "GPUCTL_KUBECONFIG" in os.environ:  # a smart shell's private copy is removed when that shell ends
        variables["KUBECONFIG"] = os.environ.get("GPUCTL_KUBE_FROM", "")
    if not server.runs():
        return replace(server, config=config, environment={**server.environment, **variables})
    server.do("set-environment", "-g", "GPUCTL_PROGRAM", path)
    server.do("source-file", config)
    return server


def command_of(run: Sequence[str], user_settings: settings.Settings, context: str = "") -> tuple[str, ...]:
    """Return a pane's command; k9s gets --readonly in production, and if the settings ask for it.

    It does not if the command sets a mode. `context`: of the pane; one in the command counts, too.
    """
    if run[0] != "k9s" or {"--readonly", "--write"} & set(run):
        return tuple(run)
    names = [context, *(after for word, after in pairwise(run) if word == "--context")]
    names += [word.removeprefix("--context=") for word in run if word.startswith("--context=")]
    return (*run, "--readonly") if any(user_settings.k9s_is_readonly(name) for name in names) else tuple(run)


def with_plugins(environment: Mapping[str, str]) -> str:
    """Return XDG_DATA_DIRS with our k9s plugin folder appended."""
    usual = environment.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    return usual if str(SHARE) in usual.split(":") else f"{usual}:{SHARE}"


def _plain(text: str) -> str:
    """Escape text that tmux expands: a folder name could be a format that runs a program."""
    return text.replace("#", "##")


@dataclass(frozen=True)
class _Build:
    """The tmux commands that create one session; `existing`: title -> id of panes that are moved, not created."""

    server: Server
    folder: Path
    name: str
    session: Session
    settings: settings.Settings
    existing: Mapping[str, str] = field(default_factory=dict)

    def start(self, size: tuple[int, int]) -> str:
        """Create the session with its first window; returns that window's first pane."""
        base = Path(self.session.directory).expanduser()
        base.mkdir(parents=True, exist_ok=True)
        window = self.session.windows[0]
        command = ["new-session", "-d", "-s", self.name, "-x", str(size[0]), "-y", str(size[1] - STATUS_BAR)]
        return self._create_pane([*command, "-n", _plain(window.name)], window.panes[0])

    def windows(self, first: str) -> None:
        """Create the remaining panes of the first window, and the other windows."""
        window, *others = self.session.windows
        if window.index not in (None, int(self._read(first, "window_index"))):
            self.server.do("move-window", "-s", first, "-t", f"={self.name}:{window.index}")
        self._panes(window, first)
        for number, later_window in enumerate(others, 1):
            index = number if later_window.index is None else later_window.index
            command = ["new-window", "-d", "-t", f"={self.name}:{index}", "-n", _plain(later_window.name)]
            self._panes(later_window, self._create_pane(command, later_window.panes[0]))

    def add(self, window: Window) -> str:
        """Create a window after the others; returns its first pane."""
        first, target = self.existing.get(window.panes[0].title, ""), f"={self.name}:"
        if first:
            self.server.do("break-pane", "-d", "-s", first, "-n", _plain(window.name), "-t", target)
        else:
            command = ["new-window", "-d", "-t", target, "-n", _plain(window.name)]
            first = self._create_pane(command, window.panes[0])
        self._panes(window, first)
        return first

    def _panes(self, window: Window, first: str) -> None:
        ids, last = {window.panes[0].title: first}, first
        created = [(window.panes[0], first)]
        for pane in window.panes[1:]:
            target = ids.get(pane.of, last)
            side = "-h" if pane.side == "right" else "-v"
            size = ["-d", side, "-l", f"{pane.size}%", "-t", target]
            if moved := self.existing.get(pane.title):
                self.server.do("join-pane", *size, "-s", moved)
                last = moved
            else:
                last = self._create_pane(["split-window", *size], pane)
            ids[pane.title] = last
            created.append((pane, last))
            if window.layout:  # makes room for the next one; the layout follows when all exist
                self.server.do("select-layout", "-t", first, "tiled")
        if window.layout:
            self._lay_out(window, first)
        remember(self.server, first)
        for pane, pane_id in created:
            if pane.active:
                self.server.do("select-pane", "-t", pane_id)
        if window.active:
            self.server.do("select-window", "-t", first)

    def _lay_out(self, window: Window, first: str) -> None:
        """Apply the layout; panes that it does not fit stay tiled."""
        size = [int(self._read(first, f"window_{side}")) for side in ("width", "height")]
        cell = layout.parse(window.layout)
        desired = layout.written(layout.scaled(cell, *size)) if cell else window.layout
        self.server.try_to("select-layout", "-t", first, desired)

    def _create_pane(self, command: Sequence[str], pane: Pane) -> str:
        """Run a command that creates a pane; returns the pane's id."""
        environment = [word for item in self._environment(pane).items() for word in ("-e", "=".join(item))]
        start = ("-c", _plain(str(self._start(pane))), "-P", "-F", "#{pane_id}")
        pane_id = self.server.do(*command, *start, *environment, *self._program(pane)).strip()
        pane_options = {
            "title": pane.title,
            "repository": pane.repository,
            "install": pane.install,
            "context": pane.context,
            "namespace": pane.namespace,
        }
        for option, value in pane_options.items():
            if value:
                self.server.do("set-option", "-p", "-t", pane_id, f"@gpuctl_{option}", value)
        if pane.title:
            self.server.do("select-pane", "-t", pane_id, "-T", _plain(pane.title))
        return pane_id

    def _start(self, pane: Pane) -> Path:
        """Return a pane's start directory: its own or its repository if it exists, else the session's."""
        requested = Path(pane.directory) if pane.directory else self._repository(pane)
        start = requested and requested.expanduser()
        return start if start and start.is_dir() else Path(self.session.directory).expanduser()

    def _repository(self, pane: Pane) -> Path | None:
        if not pane.repository:
            return None
        return repository(pane.repository, self.session.directory, self.settings)

    def _program(self, pane: Pane) -> list[str]:
        scripts = self.folder / "scripts"
        if pane.run:
            return ["sh", str(scripts / "pane.sh"), pane.install, *command_of(pane.run, self.settings, pane.context)]
        if pane.repository:
            return ["sh", str(scripts / "repository.sh"), pane.repository, str(self._repository(pane))]
        return ["sh", str(scripts / "shell.sh")]

    def _environment(self, pane: Pane) -> dict[str, str]:
        kube = {"GPUCTL_KUBE_CONTEXT": pane.context, "GPUCTL_KUBE_NAMESPACE": pane.namespace}
        variables = {name: value for name, value in kube.items() if value}
        if pane.run:
            plugins = {"XDG_DATA_DIRS": with_plugins(os.environ)} if pane.run[0] == "k9s" else {}
            return {"GPUCTL_RUN": json.dumps(pane.run), **plugins, **variables}
        if not pane.repository:
            return variables
        git = self.session.git
        variables["GIT_CONFIG_COUNT"] = str(len(git))
        for number, (key, value) in enumerate(git.items()):
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables

    def options(self) -> None:
        """Mark the session as complete, with the options that the window-0 keys and the saves read."""
        target = f"={self.name}:"
        if not any(window.active for window in self.session.windows):
            self.server.do("select-window", "-t", f"={self.name}:^")
        shell = """exec sh "$GPUCTL_TMUX_FOLDER/scripts/shell.sh\""""
        token = str(time.time_ns())
        self.server.do("set-option", "-t", target, "default-command", shell)
        template_meta.store(self.server, target, self.session)
        self.server.do("set-option", "-t", target, "@gpuctl_session", "on")
        if self.name == SESSION:
            self.server.do("set-option", "-s", "@gpuctl_saver", token)
            every = self.server.do("show-options", "-gv", "@gpuctl_save_every").strip()
            save_command = f"sh #{{q:@gpuctl_folder}}/scripts/save.sh every {token}"
            self.server.do("run-shell", "-b", "-d", every, "-t", target, save_command)

    def _read(self, target: str, name: str) -> str:
        return self.server.do("display-message", "-p", "-t", target, f"#{{{name}}}").strip()
