"""Rules of udev that write kernel files or sysctls, or run programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .lines import ConfigLine, StartupLine, in_order
from .search import Search

FOLDERS = (
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
)
PROGRAMS = ("/usr/lib/udev", "/lib/udev")  # folders of programs without a path
OURS = "/99-zz-gpuctl"
TERM = re.compile(r"""(\w+)(?:\{([^}]*)\})?\s*(==|!=|\+=|-=|:=|=)\s*e?"((?:[^"\\]|\\.)*)\"""")
ASSIGNS = ("=", "+=", ":=")
# Subsystems whose devices are all added before gpuctl-boot runs. Disks and interfaces come at any time.
EARLY = frozenset({"cpu", "pci", "node", "memory"})


class Term(NamedTuple):
    """KEY{attribute} operator "value"."""

    key: str
    attribute: str
    operator: str
    value: str


def udev_lines(search: Search) -> list[StartupLine]:
    """A line "/sys/…/FILE=VALUE" for each ATTR, "KEY=VALUE" for each SYSCTL, and the command lines of RUN."""
    rows: list[StartupLine] = []
    for path in in_order(search.host, FOLDERS, ".rules"):
        if OURS in path:
            continue
        text = search.text(path)
        if any(word in text for word in ("RUN", "SYSCTL{", "ATTR{", "{program}", "PROGRAM")):
            for line in search.lines("udev", path):
                rows += _of_rule(search, line)
    return rows


def _of_rule(search: Search, line: ConfigLine) -> Iterator[StartupLine]:
    terms = [Term(*match) for match in TERM.findall(line.text)]
    subsystems = {term.value for term in terms if term.key in ("SUBSYSTEM", "SUBSYSTEMS") and term.operator == "=="}
    actions = [term.value for term in terms if term.key == "ACTION" and term.operator == "=="]
    # A rule for "change", or without an action, is applied again whenever a program has written to the device.
    once = bool(actions) and all(set(action.split("|")) <= {"add", "bind"} for action in actions)
    early = once and bool(subsystems) and subsystems <= EARLY
    for term in terms:
        if term.key == "SYSCTL" and term.operator in ASSIGNS:
            yield StartupLine(line._replace(text=f"{term.attribute}={term.value}"), runs=True, late=not early)
        elif term.key == "ATTR" and term.operator in ASSIGNS:
            subsystem = "|".join(sorted(subsystems))
            text = f"/sys/{subsystem or '?'}/{term.attribute.lstrip('/')}={term.value}"
            yield StartupLine(line._replace(text=text), runs=True, late=not once)
        elif command := _command(term):
            yield from search.with_named(StartupLine(line._replace(text=command), runs=True, late=not early))


def _command(term: Term) -> str:
    """The command line of a term that runs one; empty for other terms."""
    runs = term.key == "RUN" and term.operator in ASSIGNS and term.attribute in ("", "program")
    if not (runs or term.key == "PROGRAM" or (term.key == "IMPORT" and term.attribute == "program")):
        return ""
    command = term.value.replace('\\"', '"')
    return command if command.startswith("/") else f"{PROGRAMS[0]}/{command}"
