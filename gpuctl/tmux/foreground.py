"""Which program runs in front in each terminal, from what `ps` prints."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePath

INTERPRETERS = ("node", "python3", "python", "bun")


def programs(table: str, allowed: Collection[str], proc: Path = Path("/proc")) -> dict[str, tuple[str, ...]]:
    """Terminal -> words of its program in front, for the allowed ones (by name).

    `table` is from `ps -A` with pid, pgid, tpgid, tty and args, without headings.
    """
    found: dict[str, tuple[str, ...]] = {}
    for line in table.splitlines():
        pid, group, front, tty, *words = line.split()
        if group != front or not words:
            continue
        named = _named(_exact(proc / pid, words))
        if named[0] in allowed:
            found.setdefault(f"/dev/{tty}", named)
    return found


def _exact(process: Path, words: list[str]) -> list[str]:
    """The words as the program got them, where the system tells; `ps` loses blanks inside a word."""
    try:
        told = (process / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except (OSError, UnicodeDecodeError):
        return words
    return told if told[0] else words


def _named(words: list[str]) -> tuple[str, ...]:
    """The program by name, without the interpreter that runs it."""
    if PurePath(words[0]).name in INTERPRETERS and len(words) > 1 and not words[1].startswith("-"):
        words = words[1:]
    return (PurePath(words[0]).name, *words[1:])
