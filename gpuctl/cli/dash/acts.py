"""Commands that are run from an open line: which only read, which ask first, and which production refuses."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile

from gpuctl.cli.dash.model import Program
from gpuctl.core.errors import InvalidInput
from gpuctl.core.settings import Settings

PRODUCTION = "production"
TARGETS = ("--context", "--inventory")
CHECK = "--check"
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


def program(command: str, settings: Settings, *, allow_changes: bool) -> Program:
    """Program of a command of gpuctl. One that may change something is asked for, and in production refused.

    `InvalidInput` if an inventory or context of the command has a name of production, without `allow_changes`.
    """
    argv = shlex.split(command)
    if only_reads(argv):
        return Program(argv)
    names = [name for name in targets(argv) if settings.stage(name) == PRODUCTION]
    if names and not allow_changes:
        wrong = f"{names[0]} is production, which this screen does not change"
        raise InvalidInput("run it", wrong, "`c` copies the command; `gpuctl dash --allow-changes` runs it from here")
    return Program(argv, f"Run `{command}`?")


def only_reads(argv: Sequence[str]) -> bool:
    """True for a command of gpuctl that changes nothing."""
    names = tuple(takewhile(lambda word: not word.startswith("-"), argv[1:]))
    return CHECK in argv or names in LISTS or any(names[: len(first)] == first for first in READS)


def targets(argv: Sequence[str]) -> Iterator[str]:
    """Inventories and contexts of a command."""
    for number, word in enumerate(argv):
        name, has_value, value = word.partition("=")
        if name in TARGETS:
            yield value if has_value else next(iter(argv[number + 1 :]), "")
