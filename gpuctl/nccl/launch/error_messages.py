"""Known error messages of mpirun, ssh and the shell, for launches that fail before or beside the test."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Most specific first: pattern in the output, and its meaning, filled with the pattern's groups.
_KNOWN = (
    (r"(?:\w+@)?(\S+): Permission denied \(", "{}: the first node may not log in there over ssh"),
    (r"No \S+ host key is known for (\S+) and", "{}: its host key is not known on the first node"),
    (r"ssh: connect to host (\S+) port \d+: (.+)", "{}: the first node cannot reach it over ssh ({})"),
    (r"ssh: Could not resolve hostname (\S+):", "{}: the first node cannot resolve its name"),
    (r"Host key verification failed", "the first node does not know the host key of another"),
    (
        r"(?:orted|prted)\W*: (?:(?:command )?not found|No such file)",
        "Open MPI is not installed, or not on the PATH, on another node",
    ),
    (
        r"sh: (?:line )?\d+: (\S+): (?:command )?not found",
        "{} is not installed, or not on the PATH, on one of the nodes",
    ),
    (r"failed to run command \W?(\S+?)\W?: No such file", "{} is not on every node, in the same place"),
    (r"^\s*Remote daemon:.* on node (\S+)", "{}: it was lost while the test ran"),
    (r"not enough slots available", "mpirun finds too few places for the ranks"),
    (r"detected an attempt to run as root", "mpirun does not run as root: log in as a user, or give --as-root"),
    (r"exited on signal (\d+) \((.+)\)", "a rank was ended by signal {} ({})"),
)


_ERROR = re.compile(
    r"error|fail|cannot|can't|could not|unable|not found|denied|refused|no such|unknown|invalid|abort|fault|killed",
    re.IGNORECASE,
)
_FRAME = re.compile(r"-{20,}\s*$")  # frame of Open MPI's messages
_NO_ERROR = re.compile(r"WARNING|By default|Warning: Permanently added|.*NCCL INFO|Primary job +terminated normally")
LONGEST = 300


def cause(lines: Sequence[str]) -> str | None:
    """First known reason in the output of the surrounding programs; None if there is none."""
    for pattern, template in _KNOWN:
        for line in lines:
            match = re.search(pattern, line)
            if match:
                return template.format(*match.groups())
    return None


def first_error(lines: Sequence[str]) -> str | None:
    """First text that looks like an error; None if there is none.

    A block that Open MPI frames with dashes is taken by the paragraph, including the next one after a colon.
    """
    heading, framed = False, False
    for number, line in enumerate(lines):
        if _FRAME.match(line):
            heading = framed = not framed
        elif line.strip() and (heading or not framed):
            text = _paragraph(lines[number:]) if framed else line.strip()
            if not _NO_ERROR.match(text) and (framed or _ERROR.search(text)):
                return text[:LONGEST].rstrip(": ")
            heading = False  # the rest of this frame belongs to it
    return None


def _paragraph(lines: Sequence[str]) -> str:
    """First paragraph of these lines, joined to one line."""
    parts: list[str] = []
    for line in lines:
        if _FRAME.match(line) or not (line.strip() or parts[-1].endswith(":")):
            break
        parts += [line.strip()] if line.strip() else []
    return " ".join(parts)
