"""GRUB as Debian and Ubuntu keep it: /etc/default/grub and its drop-ins, out of which update-grub makes grub.cfg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..host import Host
from ..kernel_line import SET, argument, filled, split, value
from ..model import Conflict, Unreadable
from ..resources.line import GRUB

CONFIG = "/boot/grub/grub.cfg"
FIRST, LAST = "GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"  # as they stand on the line
SECTION = re.compile(r"^### BEGIN /etc/grub\.d/\S*linux\S* ###$(.*?)^### END", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^\s*menuentry ", re.MULTILINE)
LINUX = re.compile(r"^\s*linux(?:efi|16)?\s+(.+)$", re.MULTILINE)
RECOVERY = frozenset({"single", "recovery"})
ASSIGNMENT = re.compile(
    r"""^[ \t]*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?=)("(?:[^"\\]|\\.)*"|'[^']*'|\S*)""",
    re.MULTILINE | re.DOTALL,
)


def normal_entries(host: Host) -> list[list[str]]:
    """The arguments of every entry for a kernel of this system that is not for recovery."""
    text = host.read(CONFIG)
    known = dict(SET.findall(text))
    # Other sections list other systems on the disk, a memory test, or what somebody wrote by hand.
    ours = "".join(SECTION.findall(text)) or text
    found = []
    for entry in ENTRY.split(ours)[1:]:
        title = entry.partition("\n")[0]
        lines = [split(filled(line, known)) for line in LINUX.findall(entry)]
        found += [words for words in lines if "-recovery-" not in title and not RECOVERY & set(words)]
    if not found:
        raise Unreadable(f"{CONFIG} has no entry that boots Linux")
    return found


class Assignment(NamedTuple):
    """One line of a shell file that gives a variable its arguments."""

    path: str
    number: int
    variable: str
    adds: bool  # keeps what the variable held before
    text: str

    def says(self, name: str) -> str | None:
        return value(split(self.text), name)

    def against_us(self, said: str, wins: bool) -> Conflict:
        return Conflict("GRUB", f"{self.path}:{self.number}", said, wins)


def rivals(host: Host, name: str, wanted: str) -> list[Conflict]:
    """Lines that give an argument another value than ours, and a line behind ours that forgets it."""
    standing: dict[str, list[Assignment]] = {FIRST: [], LAST: []}
    for line in _assignments(host, argument(name, wanted)):
        standing[line.variable] = [*(standing[line.variable] if line.adds else ()), line]
    lines = [line for line in standing[FIRST] + standing[LAST] if line.says(name) is not None]
    found = [line.against_us(str(line.says(name)), line is lines[-1]) for line in lines if line.says(name) != wanted]
    if not lines:
        forgets = standing[LAST][0]
        found.append(forgets.against_us(f'{LAST} anew: "{forgets.text}"', wins=True))
    return found


def _assignments(host: Host, ours: str) -> Iterator[Assignment]:
    """In the order in which update-grub reads them; our file as it is going to be."""
    for path in sorted({"/etc/default/grub", *host.glob("/etc/default/grub.d/*.cfg"), GRUB}):
        if path == GRUB:
            yield Assignment(path, 0, LAST, True, ours)
            continue
        text = host.read_or_none(path) or ""
        for found in ASSIGNMENT.finditer(text):
            variable, sign, quoted = found.groups()
            given = quoted.strip("\"'").replace("\\\n", " ")
            adds = sign == "+=" or re.search(rf"\$\{{?{variable}\b", given) is not None
            yield Assignment(path, text.count("\n", 0, found.start()) + 1, variable, adds, given)
