"""A tmux server's keys and global options: read, compare, and restore them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuctl.core.errors import GpuctlError
from gpuctl.edges.tmux import Server

Key = tuple[str, str]  # table, key as list-keys writes it
Option = tuple[str, str]  # flag of set-option (or set-hook), name
SHOWN: Mapping[str, tuple[str, ...]] = {
    "set-option -g": ("show-options", "-g"),
    "set-option -gw": ("show-options", "-gw"),
    "set-option -s": ("show-options", "-s"),
    "set-hook -g": ("show-hooks", "-g"),
    "set-hook -gw": ("show-hooks", "-gw"),
}
BOUND = re.compile(r"bind-key\s+(?:-r\s+)?-T (\S+)\s+(\S+)\s")


@dataclass(frozen=True)
class State:
    """Keys with their bind-key commands; options and hooks with their values in tmux's notation."""

    keys: Mapping[Key, str]
    options: Mapping[Option, str]


@dataclass(frozen=True)
class Changed:
    """The keys and options that a configuration changes on a bare server."""

    keys: frozenset[Key] = frozenset()
    options: frozenset[Option] = frozenset()

    def __or__(self, other: Changed) -> Changed:
        return Changed(self.keys | other.keys, self.options | other.options)

    def __sub__(self, other: Changed) -> Changed:
        return Changed(self.keys - other.keys, self.options - other.options)


def read(server: Server) -> State:
    """Read a server's current state."""
    options = {}
    for command, shown in SHOWN.items():
        for line in server.do(*shown).splitlines():
            name, _, value = line.partition(" ")
            if value:  # a name alone is an empty hook or list
                options[(command, name)] = value
    return State(keys(server.do("list-keys")), options)


def keys(output: str) -> dict[Key, str]:
    """Parse the output of `tmux list-keys`."""
    matches = ((BOUND.match(line), line) for line in output.splitlines())
    return {(match[1], match[2]): line for match, line in matches if match}


def changed(before: State, after: State) -> Changed:
    """Return the keys and options that differ between two states."""
    return Changed(_differing(before.keys, after.keys), _differing(before.options, after.options))


def _differing(
    before: Mapping[tuple[str, str], str], after: Mapping[tuple[str, str], str]
) -> frozenset[tuple[str, str]]:
    return frozenset(name for name in {*before, *after} if before.get(name) != after.get(name))


def commands(selected: State, what: Changed) -> list[str]:
    """Return the configuration lines that restore these keys and options."""
    lines = []
    for table, key in sorted(what.keys):
        lines.append(selected.keys.get((table, key)) or f"unbind-key -q -T {table} {key}")
    for command, name in sorted(what.options):
        value = selected.options.get((command, name), "")
        if not value:
            lines.append(f"{command}u '{name}'")
        elif command.startswith("set-hook"):
            lines.append(f"{command} '{name}' {{ {value} }}")
        else:
            lines.append(f"{command} '{name}' {value}")
    return lines


def have(server: Server, lines: Iterable[str]) -> None:
    """Run commands through a file, so that they need no quoting of ours."""
    with tempfile.TemporaryDirectory(prefix="gpuctl-tmux-") as folder:
        path = Path(folder) / "commands.conf"
        path.write_text("".join(f"{line}\n" for line in lines))
        done = server.try_to("source-file", str(path))
    if done.returncode:
        wrong = (done.stderr or done.stdout).strip().replace(f"{path}:", "line ")
        raise GpuctlError(f"set keys and options of the tmux server {server.socket}", wrong or "tmux gives no reason")
