"""Save the session, one file per save, each read back before it counts; find the last good save."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuctl.core import settings
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import private, state_dir, write_atomically
from gpuctl.edges.kube import config
from gpuctl.edges.processes import Processes
from gpuctl.edges.tmux import Server
from gpuctl.tmux import session_file, template_meta
from gpuctl.tmux.foreground import programs
from gpuctl.tmux.paths import SESSION, repository
from gpuctl.tmux.session import Pane, Session, Window

KEPT = 20
PANE = {
    "window": "window_index",
    "name": "window_name",
    "layout": "window_layout",
    "window_active": "window_active",
    "active": "pane_active",
    "tty": "pane_tty",
    "directory": "pane_current_path",
    "title": "@gpuctl_title",
    "repository": "@gpuctl_repository",
    "install": "@gpuctl_install",
    "run": "@gpuctl_run",
    "kubeconfig": "@gpuctl_kubeconfig",
    "context": "@gpuctl_context",
    "namespace": "@gpuctl_namespace",
}


@dataclass(frozen=True)
class Save:
    """A valid save; `when` is also the name of its file."""

    when: str
    path: Path
    session: Session


def folder() -> Path:
    return state_dir() / "tmux"


def save(server: Server) -> Save:
    """Save the session; returns the last save if nothing changed since."""
    if not server.has(SESSION):
        raise GpuctlError("save the session", f"{SESSION} does not run", "`gpuctl tmux launch` starts it")
    text = session_file.text(_running_session(server))
    last = latest()
    if last and last.path.read_text() == text:
        return last
    when = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    path = private(folder()) / f"{when}.yml"
    draft = path.with_suffix(".draft")
    write_atomically(draft, text)
    session = session_file.read(draft)  # an unreadable save does not count
    draft.replace(path)
    for old in sorted(folder().glob("*.yml"))[:-KEPT]:
        old.unlink(missing_ok=True)
    return Save(when, path, session)


def saves() -> list[Save]:
    """Return all valid saves, newest first; invalid files are skipped."""
    valid_saves = []
    for path in sorted(folder().glob("*.yml"), reverse=True):
        try:
            valid_saves.append(Save(path.stem, path, session_file.read(path)))
        except InvalidInput:
            continue
    return valid_saves


def latest() -> Save | None:
    """Return the newest valid save."""
    return next(iter(saves()), None)


def named(when: str) -> Save:
    """Return the save with this name, or the newest one for ""."""
    candidates = saves()
    for candidate in candidates:
        if when in ("", candidate.when):
            return candidate
    wrong = f"there is no valid save {when}" if candidates else "nothing has been saved yet"
    raise InvalidInput("restore the session", wrong, "`gpuctl tmux restore --list` lists the saves")


def _running_session(server: Server) -> Session:
    """Return the running session as a value that can be built again."""
    if server.do("show-options", "-qv", "-t", f"={SESSION}:", "@gpuctl_session").strip() != "on":
        raise GpuctlError("save the session", "it is still being built", "try again when it has all its windows")
    outline = template_meta.load(server, f"={SESSION}:")
    # Independent of the user's locale: without UTF-8, tmux prints _ for every non-ASCII character.
    plain = replace(server, environment={**server.environment, "LC_ALL": "C.UTF-8"})
    form = "\t".join(f"#{{{name}}}" for name in PANE.values())
    lines = plain.do("list-panes", "-s", "-t", f"={SESSION}", "-F", form).splitlines()
    panes = [dict(zip(PANE, line.split("\t"), strict=True)) for line in lines if line.count("\t") == len(PANE) - 1]
    if not panes or len(panes) != len(lines):
        raise GpuctlError("save the session", "tmux listed its panes in an unexpected format")
    columns = [word for name in ("pid", "pgid", "tpgid", "tty", "args") for word in ("-o", f"{name}=")]
    done = Processes().run(["ps", "-A", *columns], b"", 10)
    running = programs(done.out.decode(errors="replace"), outline.restore)
    user_settings = settings.load()
    located = [{**pane, **_location(pane, outline, user_settings)} for pane in panes]
    return replace(outline, windows=_windows(located, running))


def _location(pane: Mapping[str, str], outline: Session, user_settings: settings.Settings) -> dict[str, str]:
    """Return a pane's directory, and its repository while the pane is inside it.

    A pane keeps a missing repository if it waits for it in the session's directory.
    """
    name, directory = pane["repository"], Path(pane["directory"])
    if not name:
        return {}
    repository_path = repository(name, outline.directory, user_settings)
    if repository_path.is_dir():
        return {} if directory.is_relative_to(repository_path.resolve()) else {"repository": ""}
    waiting = directory == Path(outline.directory).expanduser().resolve()
    return {"directory": ""} if waiting else {}


def _windows(panes: Sequence[dict[str, str]], running: dict[str, tuple[str, ...]]) -> tuple[Window, ...]:
    return tuple(
        Window(
            name=window_panes[0]["name"],
            panes=tuple(_pane(pane, running) for pane in window_panes),
            layout=window_panes[0]["layout"],
            index=int(index),
            active=window_panes[0]["window_active"] == "1",
        )
        for index in dict.fromkeys(pane["window"] for pane in panes)
        for window_panes in [[pane for pane in panes if pane["window"] == index]]
    )


def _pane(pane: dict[str, str], running: dict[str, tuple[str, ...]]) -> Pane:
    run = tuple(json.loads(pane["run"])) if pane["run"] else running.get(pane["tty"], ())
    # A pane whose own context does not exist has none: the next restore must not choose another one.
    current = _context(pane["kubeconfig"])
    return Pane(
        title=pane["title"],
        directory=pane["directory"],
        # The repository is shown again only if no program runs in the pane.
        repository="" if run else pane["repository"],
        run=run,
        install=pane["install"] if run else "",
        active=pane["active"] == "1",
        context=current.name if current else pane["context"],
        namespace=current.namespace if current else pane["namespace"],
    )


def _context(path: str) -> config.Context | None:
    """Return the context of a pane's smart shell; None without a context or a private kubeconfig."""
    try:
        return config.current(Path(path)) if path else None
    except InvalidInput:
        return None
