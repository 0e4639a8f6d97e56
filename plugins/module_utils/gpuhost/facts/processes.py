"""Count running programs, as far as this user may see processes of others."""

from __future__ import annotations

from ..host import Host

NAME_LENGTH = 15  # the kernel truncates names of programs to this
FIRST = "/proc/1/comm"
HIDDEN = "other users' processes are hidden here (hidepid); run it as root"


def count(host: Host, *names: str, but: tuple[str, ...] = ()) -> int | None:
    """Number of processes with one of these names; None if there is none and other users' are hidden.

    `but`: arguments of those that do not count.
    """
    known = {name[:NAME_LENGTH] for name in names}
    paths = host.glob("/proc/[0-9]*/comm")
    matches = sum(_name(host, path) in known and not (but and _arguments(host, path) == but) for path in paths)
    # Process 1 always exists; if it is invisible, so are others (hidepid of proc(5)).
    hidden = bool(paths) and _name(host, FIRST) is None
    return None if hidden and not matches else matches


def _arguments(host: Host, comm: str) -> tuple[str, ...]:
    """Arguments of the process with this comm file; empty if they cannot be read."""
    try:
        words = (host.read_or_none(f"{comm[: -len('comm')]}cmdline") or "").split("\0")[:-1]
    except OSError:
        return ()
    return tuple(words[1:])


def _name(host: Host, path: str) -> str | None:
    """Name of the program; None if it cannot be read, or the process has ended."""
    try:
        return host.value(path) or None
    except OSError:
        return None
