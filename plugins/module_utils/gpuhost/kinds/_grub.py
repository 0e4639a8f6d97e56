"""GRUB on Debian and Ubuntu: /etc/default/grub and its drop-ins, from which update-grub generates grub.cfg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..host import Host
from ..kernel_line import SET, argument, filled, split, value
from ..model import Conflict, Unreadable
from ..resources.line import GRUB

CONFIG = "/boot/grub/grub.cfg"
FIRST, LAST = "GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"  # in their order on the line
SECTION = re.compile(r"^### BEGIN /etc/grub\.d/\S*linux\S* ###$(.*?)^### END", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^\s*menuentry ", re.MULTILINE)
LINUX = re.compile(r"^\s*linux(?:efi|16)?\s+(.+)$", re.MULTILINE)
RECOVERY = frozenset({"single", "recovery"})
ASSIGNMENT = re.compile(
    r"""^[ \t]*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?=)("(?:[^"\\]|\\.)*"|'[^']*'|\S*)""",
    re.MULTILINE | re.DOTALL,
)


def normal_entries(host: Host) -> list[list[str]]:
    """Arguments of every entry for a kernel of this system, without recovery entries."""
    text = host.read(CONFIG)
    known = dict(SET.findall(text))
    # Other sections list other systems on the disk, a memory test, or custom entries.
    ours = "".join(SECTION.findall(text)) or text
    entries = []
    for entry in ENTRY.split(ours)[1:]:
        title = entry.partition("\n")[0]
        lines = [split(filled(line, known)) for line in LINUX.findall(entry)]
        entries += [arguments for arguments in lines if "-recovery-" not in title and not RECOVERY & set(arguments)]
    if not entries:
        raise Unreadable(f"{CONFIG} has no entry that boots Linux")
    return entries


class Assignment(NamedTuple):
    """One line of a shell file that assigns kernel arguments to a variable."""

    path: str
    number: int
    variable: str
    adds: bool  # appends to the earlier value
    text: str

    def value_of(self, name: str) -> str | None:
        return value(split(self.text), name)

    def as_conflict(self, value: str, wins: bool) -> Conflict:
        return Conflict("GRUB", f"{self.path}:{self.number}", value, wins)


def rivals(host: Host, name: str, desired: str) -> list[Conflict]:
    """Lines that give an argument another value, and a line after ours that resets the variable."""
    in_force: dict[str, list[Assignment]] = {FIRST: [], LAST: []}
    for line in _assignments(host, argument(name, desired)):
        in_force[line.variable] = [*(in_force[line.variable] if line.adds else ()), line]
    lines = [line for line in in_force[FIRST] + in_force[LAST] if line.value_of(name) is not None]
    conflicts = [
        line.as_conflict(str(line.value_of(name)), line is lines[-1])
        for line in lines
        if line.value_of(name) != desired
    ]
    if not lines:
        forgets = in_force[LAST][0]
        conflicts.append(forgets.as_conflict(f'resets {LAST} to "{forgets.text}"', wins=True))
    return conflicts


def _assignments(host: Host, ours: str) -> Iterator[Assignment]:
    """Assignments in the order of update-grub; our file with the line that we will write."""
    for path in sorted({"/etc/default/grub", *host.glob("/etc/default/grub.d/*.cfg"), GRUB}):
        if path == GRUB:
            yield Assignment(path, 0, LAST, adds=True, text=ours)
            continue
        text = host.read_or_none(path) or ""
        for match in ASSIGNMENT.finditer(text):
            variable, sign, quoted = match.groups()
            content = quoted.strip("\"'").replace("\\\n", " ")
            adds = sign == "+=" or re.search(rf"\$\{{?{variable}\b", content) is not None
            yield Assignment(path, text.count("\n", 0, match.start()) + 1, variable, adds, content)
