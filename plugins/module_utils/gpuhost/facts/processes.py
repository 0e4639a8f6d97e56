"""Which programs run on this host, as far as whoever asks may see other users' processes."""

from __future__ import annotations

from ..host import Host

NAME_LENGTH = 15  # the kernel keeps no more of a program's name
FIRST = "/proc/1/comm"
HIDDEN = "other users' processes are hidden here (hidepid); ask as root"


def called(host: Host, *names: str) -> int | None:
    """How many processes have one of these names; None where none is seen and those of other users are hidden."""
    known = {name[:NAME_LENGTH] for name in names}
    paths = host.glob("/proc/[0-9]*/comm")
    found = sum(_name(host, path) in known for path in paths)
    # The first process is always there: who does not see it does not see others, either (hidepid of proc(5)).
    hidden = bool(paths) and _name(host, FIRST) is None
    return None if hidden and not found else found


def _name(host: Host, path: str) -> str | None:
    """None where it cannot be read; a process may also end just now."""
    try:
        return host.value(path) or None
    except OSError:
        return None
