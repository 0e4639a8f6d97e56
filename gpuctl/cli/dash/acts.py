"""Commands that are run from an open line: which only read, which ask first, and which production refuses."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import PurePath

from gpuctl.cli.dash.model import Program
from gpuctl.cli.dash.request import DashRequest
from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.core.text import plural
from gpuctl.engine import printable
from gpuctl.hosts.plan import find_inventory

PRODUCTION = "production"
CONTEXT = ("--context",)
INVENTORY = ("--inventory", "-i")
LIMIT = ("--limit",)
CHECK = "--check"
SEND = "--send"  # what was read leaves for a program of the settings
ROLLBACK = "rollback"
CHECKED = ((ROLLBACK,),)  # commands of open lines that have --check
# Commands that change nothing, by their first words; those of LISTS only without a further word.
READS = (
    ("audit",),
    ("explain",),
    ("kube", "logs-ai"),
    ("kube", "pod", "logs"),
    ("kube", "pods"),
    ("nccl", "history"),
    ("nccl", "report"),
    ("nodes", "nvitop"),
    ("reservations", "list"),
    ("reservations", "show"),
    ("runs", "show"),
)
LISTS = (("nodes",), ("runs",), ("subnets",))


def program(command: str, settings: Settings, dash: DashRequest, *caveats: str) -> Program:
    """Program of a command of gpuctl. One that may change something is asked for, and in production refused.

    `caveats`: sentences before the question. `InvalidInput` if an inventory or context, of the command or of the
    screen, has a name of production, without the screen's `allow_changes`.
    """
    argv = shlex.split(command)
    if only_reads(argv):
        return Program(argv)
    if not dash.allow_changes and (name := next(_production(argv, settings, dash), "")):
        wrong = printable(f"{name} is production, which this screen does not change")
        raise InvalidInput("run it", wrong, "`c` copies the command; `gpuctl dash --allow-changes` runs it from here")
    return Program(argv, "\n".join([*_effects(argv), *caveats, f"Run `{command}`?"]))


def only_reads(argv: Sequence[str]) -> bool:
    """True for a command of gpuctl that changes nothing, and sends nothing to another program."""
    names = tuple(takewhile(lambda word: not word.startswith("-"), argv[1:]))
    if any(word.partition("=")[0] == SEND for word in argv):
        return False
    reads = names in LISTS or any(names[: len(first)] == first for first in READS)
    return reads or (_is_checked(argv) and any(names[: len(first)] == first for first in CHECKED))


def values(argv: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Values of an option in a command, under any of its names; also that of `-iNAME`."""
    for number, word in enumerate(argv):
        name, has_value, value = word.partition("=")
        short = next((one for one in names if not one.startswith("--") and word.startswith(one)), "")
        if word in names:
            yield next(iter(argv[number + 1 :]), "")
        elif short:
            yield word.removeprefix(short)
        elif has_value and name in names:
            yield value


def _is_checked(argv: Sequence[str]) -> bool:
    """True if --check is an option, and not perhaps the value of the one before."""
    return any(word == CHECK and not before.startswith("-") for before, word in pairwise(argv))


def _production(argv: Sequence[str], settings: Settings, dash: DashRequest) -> Iterator[str]:
    """Inventories and contexts of production; those of the screen count too, for commands that name none."""
    inventories = [*values(argv, INVENTORY), *([dash.inventory] if dash.inventory else [])]
    contexts = [*values(argv, CONTEXT), *([dash.context] if dash.context else [])]
    for name in [*inventories, *contexts]:
        if _has_stage(name, settings):
            yield name
    for name in inventories:
        try:
            path = find_inventory(name)
        except InvalidInput:  # the command refuses it, too
            continue
        if any(_has_stage(str(one), settings) for one in (path, path.resolve())):
            yield f"{name} ({path.resolve()})"


def _has_stage(name: str, settings: Settings) -> bool:
    """True if a name, or any part of a path, with or without its endings, is one of production."""
    parts = PurePath(name).parts
    stems = [stem for part in parts for stem in (PurePath(part).stem, part.lstrip(".").partition(".")[0])]
    return any(settings.stage(one) == PRODUCTION for one in (name, *parts, *stems))


def _effects(argv: Sequence[str]) -> Iterator[str]:
    """Effects of a command that its name does not show."""
    if argv[1:2] == [ROLLBACK]:
        hosts = [host for value in values(argv, LIMIT) for host in value.split(",") if host]
        where = plural(len(hosts), "host") if hosts else "all hosts"
        yield f"It restores the values from before gpuctl on {where}: changes of other runs there are lost, too."
