"""Generate the files of a configuration version from the key table, the template and the settings."""

from __future__ import annotations

from pathlib import Path
from string import Template

from gpuctl.core.settings import Settings
from gpuctl.tmux import keys
from gpuctl.tmux.paths import TEMPLATE


def files(settings: Settings) -> dict[str, str]:
    """Return the text of each file in a version folder, by relative path."""
    table = keys.rows()
    read = {str(path.relative_to(TEMPLATE)): path.read_text() for path in sorted(TEMPLATE.rglob("*.*"))}
    generated = {
        "keybindings.conf": keys.bindings(table),
        "cheatsheet.txt": keys.cheatsheet(table),
        "session.yml": _session(read["session.yml"], settings),
    }
    return read | generated


def _session(text: str, settings: Settings) -> str:
    return Template(text).substitute(workspace=_at_home(settings.workspace))


def _at_home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path)
