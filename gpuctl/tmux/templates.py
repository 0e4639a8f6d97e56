"""Imported sessions, by name, and the list of what a session would run, shown before its import."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import config_dir, private, write_atomically
from gpuctl.tmux import session_file
from gpuctl.tmux.session import Session


def folder() -> Path:
    return config_dir() / "tmux" / "templates"


def load_all() -> dict[str, Session]:
    """Return every template by name; `InvalidInput` if one is invalid."""
    return {path.stem: session_file.read(path) for path in sorted(folder().glob("*.yml"))}


def named(name: str) -> Session:
    path = folder() / f"{usable(name)}.yml"
    if not path.is_file():
        raise InvalidInput(f"use the template {name}", "there is no such template", "see `gpuctl tmux template list`")
    return replace(session_file.read(path), template=name)


def store(name: str, session: Session) -> None:
    """Store the session as it was read, so that later changes of the source file have no effect."""
    private(folder())
    write_atomically(folder() / f"{name}.yml", session_file.text(session))


def usable(name: str) -> str:
    """Return the name if it can be a file name, else raise `InvalidInput`."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InvalidInput(
            f"name a template {name!r}", "only letters, digits, dots, - and _ are allowed", "set one with --name"
        )
    return name


def runs(session: Session) -> list[str]:
    """List what the session would run, and its git settings, as some of them name programs."""
    lines = [
        f"window {window.name}, pane {pane.title or number}: {shlex.join(pane.run)}"
        for window in session.windows
        for number, pane in enumerate(window.panes)
        if pane.run
    ]
    lines += [f"git in its repositories, with {name}={value}" for name, value in session.git.items()]
    lines += [f"after a reboot, where it was running: {program}" for program in session.restore]
    shown = ["".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line) for line in lines]
    return shown or ["only shells"]
