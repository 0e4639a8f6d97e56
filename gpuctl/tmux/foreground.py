"""Find the foreground program of each terminal in the output of `ps`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePath

INTERPRETERS = ("node", "python3", "python", "bun")


def programs(table: str, allowed: Collection[str], proc: Path = Path("/proc")) -> dict[str, tuple[str, ...]]:
    """Map each terminal to its foreground command, for allowed program names.

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
    """Return the exact arguments from /proc if available; `ps` loses spaces inside an argument."""
    try:
        exact = (process / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except (OSError, UnicodeDecodeError):
        return argv
    return exact if exact[0] else argv


def _named(argv: list[str]) -> tuple[str, ...]:
    """Return the command with its program's base name, without an interpreter."""
    if PurePath(argv[0]).name in INTERPRETERS and len(argv) > 1 and not argv[1].startswith("-"):
        argv = argv[1:]
    return (PurePath(argv[0]).name, *argv[1:])
