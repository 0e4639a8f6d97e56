"""Value that a reader makes of one output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.domain.findings import Finding, unknown

FILE = "file"  # check: a file is whole, and its format is known


@dataclass(frozen=True)
class Record:
    """Facts that an output has, by subject, in the form of gpuhost/facts; and findings about the output itself.

    `judged`: a sentence about an output that has no facts to judge.
    """

    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    judged: str = ""


@dataclass(frozen=True)
class Format:
    """A kind of output. `matches`: True for its first 16 KiB. `once`: a node has one such output."""

    name: str
    matches: Callable[[str], bool]
    read: Callable[[str], Record]
    once: bool = True


def doubt(message: str, hint: str = "save the whole output") -> Finding:
    """UNKNOWN about a part that the output lacks."""
    return unknown(FILE, "", message, hint)
