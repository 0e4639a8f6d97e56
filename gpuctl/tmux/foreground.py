"""Which program runs in front in each terminal, from what `ps` prints."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePath

INTERPRETERS = ("node", "python3", "python", "bun")


def programs(table: str, allowed: Collection[str], proc: Path = Path("/proc")) -> dict[str, tuple[str, ...]]:
    """Terminal -> words of its program in front, for the allowed ones (by name).

    `table` is from `ps -A` with pid, pgid, tpgid, tty and args, without headings.
    """
    by_terminal: dict[str, tuple[str, ...]] = {}
    for line in table.splitlines():
        pid, group, front, tty, *argv = line.split()
        if group != front or not argv:
            continue
        named = _named(_exact(proc / pid, argv))
        if named[0] in allowed:
            by_terminal.setdefault(f"/dev/{tty}", named)
    return by_terminal


def _exact(process: Path, argv: list[str]) -> list[str]:
    """The words as the program got them, where the system tells; `ps` loses blanks inside a word."""
    try:
        exact = (process / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except (OSError, UnicodeDecodeError):
        return argv
    return exact if exact[0] else argv


def _named(argv: list[str]) -> tuple[str, ...]:
    """The program by name, without the interpreter that runs it."""
    if PurePath(argv[0]).name in INTERPRETERS and len(argv) > 1 and not argv[1].startswith("-"):
        argv = argv[1:]
    return (PurePath(argv[0]).name, *argv[1:])
