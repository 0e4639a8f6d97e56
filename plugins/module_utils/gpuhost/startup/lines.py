"""Lines of configuration files, and the files of drop-in folders in their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..host import Host


class ConfigLine(NamedTuple):
    """One line of a configuration file, and the owner of the file."""

    owner: str
    path: str
    number: int
    text: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"


class StartupLine(NamedTuple):
    """A line and when it takes effect. `runs`: at boot, by all that its files say; `late`: after gpuctl-boot."""

    line: ConfigLine
    runs: bool
    late: bool


def config_lines(host: Host, owner: str, path: str) -> Iterator[ConfigLine]:
    """The lines of a file without comments and empty ones; lines that end in a backslash are joined."""
    return joined_lines(owner, path, host.read_or_none(path) or "")


def joined_lines(owner: str, path: str, text: str) -> Iterator[ConfigLine]:
    """The lines of a text without comments and empty ones; lines that end in a backslash are joined."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        joined += line.strip()
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        if joined and not joined.startswith(("#", ";")):
            yield ConfigLine(owner, path, first, joined)
        joined, first = "", 0


def in_order(host: Host, folders: tuple[str, ...], suffix: str) -> list[str]:
    """Files of drop-in folders in the order of systemd: by name; a file of an earlier folder hides its namesakes."""
    by_name: dict[str, str] = {}
    for folder in reversed(folders):
        by_name.update({name: f"{folder}/{name}" for name in host.listdir(folder) if name.endswith(suffix)})
    return [by_name[name] for name in sorted(by_name)]
