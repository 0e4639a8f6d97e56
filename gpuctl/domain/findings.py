"""Verdicts, and the exit code that follows from the worst of them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

# 4 a fault of ours > 2 what was given cannot be used > 3 could not do it > 1 problems found > 0 all well
_WORST_FIRST = (4, 2, 3, 1, 0)


class Verdict(StrEnum):
    """How something stands. UNKNOWN is never fine."""

    OK = "OK"
    WARN = "WARN"
    UNKNOWN = "UNKNOWN"
    FAIL = "FAIL"


def worst_code(codes: Iterable[int]) -> int:
    """The exit code of a run over many: the worst decides; 0 for none."""
    return min(codes, key=_WORST_FIRST.index, default=0)
