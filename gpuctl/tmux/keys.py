"""The table of keys, and the bindings and cheatsheet generated from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import yaml

import gpuctl

TABLE = Path(gpuctl.__file__).parent / "data/tmux_keys.yml"
# A version is the same for everybody: what the user's settings say of these keys is asked when one is pressed.
SWITCHED_OFF = "#{==:#{@gpuctl_keys_without_prefix},off}"
# The session says of itself that it is ours: window 0 of the user's other sessions keeps its keys.
IN_WINDOW_0 = "#{&&:#{@gpuctl_session},#{==:#{window_index},0}}"


@dataclass(frozen=True)
class Row:
    """Keys that belong together; tmux_keys.yml explains the fields."""

    keys: Mapping[str, str]
    does: str
    category: str
    label: str = ""
    table: str = "prefix"
    where: str = ""
    repeat: bool = False

    @property
    def written(self) -> str:
        return self.label or " ".join(self.keys)


def rows() -> list[Row]:
    """Return the rows of the table."""
    return [Row(**row) for row in yaml.safe_load(TABLE.read_text())]


def bindings(table: Sequence[Row]) -> str:
    """Generate keybindings.conf: one command per line, by category."""
    usual = {(row.table, key): command for row in table if not row.where for key, command in row.keys.items()}
    special = {(row.table, key) for row in table if row.where for key in row.keys}
    lines = ["# Made by gpuctl. What a key does in words: cheatsheet.txt"]
    for category, group in groupby(table, lambda row: row.category):
        lines += ["", f"# {category}", *_bound(list(group), usual, special)]
    return "\n".join(lines) + "\n"


def _bound(group: Sequence[Row], usual: Mapping[tuple[str, str], str], special: set[tuple[str, str]]) -> Iterator[str]:
    for row in group:
        for key, command in row.keys.items():
            table_key = (row.table, key)
            repeat = "-r " if row.repeat else ""
            bind = f"bind-key {repeat}-T {row.table} {_quoted(key)}"
            if row.where:
                otherwise = f" {{ {usual[table_key]} }}" if table_key in usual else ""
                yield f"{bind} if-shell -F '{IN_WINDOW_0}' {{ {command} }}{otherwise}"
            elif row.table == "root":
                yield f"{bind} if-shell -F '{SWITCHED_OFF}' {{ send-keys {_quoted(key)} }} {{ {command} }}"
            elif table_key not in special:
                yield f"{bind} {command}"


def _quoted(key: str) -> str:
    return f"'{key}'" if not key.replace("-", "").isalnum() else key


def cheatsheet(table: Sequence[Row]) -> str:
    """Generate cheatsheet.txt: a heading per category, then keys and descriptions."""
    width = max(len(row.written) for row in table)
    lines = []
    for category, group in groupby(table, lambda row: row.category):
        lines += [category.upper(), *(f"  {row.written.ljust(width)}  {row.does}" for row in group)]
    return "\n".join(lines) + "\n"
