"""Outcome of a run, from its output and from what its runner knows.

What counts as evidence, the strongest first:

- wrong values in a row or in the summary, or a count of them that is nan: corrupt, whatever came afterwards;
- a reason that some rank, launcher, scheduler or kernel printed: failed, killed or hung;
- the summary: complete. Without it as many rows as the heading announced are, where all are of one type, operation and
  root: with -d all or -o all the heading announces the sizes of each, and says not of how many;
- what the runner says it did (`Stopped`): a text alone cannot tell a hang from a log that was cut;
- without a runner: the heading of the table, its line whole, and then nothing at all is taken for a hang in the first
  size; anything else that just ends is truncated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuctl.nccl.model import NoNumber, Outcome, Row
from gpuctl.nccl.parsing.rows import NOT_FINITE


class Stopped(StrEnum):
    """Runner's knowledge of how the program that printed the text ended."""

    SUCCEEDED = "ended well"  # exit status 0
    FAILED = "failed"  # any other exit status
    KILLED = "killed"  # by a signal that was not ours
    LIMIT = "limit"  # ended by the runner, because it took too long


@dataclass(frozen=True)
class Evidence:
    """Facts that decide the outcome.

    `expected`: sizes announced in the heading; `whole`: no line was cut; `warning`: what NCCL warned of, where nothing
    else says why a run ended.
    """

    rows: tuple[Row, ...]
    out_of_bounds: int | None
    summed_up: bool
    expected: int | None
    begun: bool  # the heading of the table was printed
    started: bool  # anything of nccl-tests was printed
    whole: bool
    foreign: str | None = None
    not_numbers: tuple[NoNumber, ...] = ()
    warning: str | None = None

    @property
    def to_its_end(self) -> bool:
        """True if every size was measured, as far as the output shows."""
        one_kind = len({kind(row) for row in self.rows}) == 1
        return self.summed_up or (self.expected is not None and one_kind and len(self.rows) >= self.expected)


def kind(row: Row) -> tuple[str | None, str | None, int | None]:
    """Type, operation and root of a row; with -d all, -o all or -r all the sizes repeat for each of them."""
    return row.type, row.redop, row.root


Judged = tuple[Outcome, str | None]


def judged(
    evidence: Evidence, trouble: Outcome | None, fatal: bool, cause: str | None, stopped: Stopped | None = None
) -> Judged:
    """Decide the outcome and its cause. `trouble`: outcome of the first reason; `fatal`: no run survives it."""
    corrupt = _corrupt(evidence)
    if corrupt:
        return Outcome.CORRUPT, corrupt
    if evidence.foreign and not evidence.rows:
        return Outcome.EMPTY, f"this is output of {evidence.foreign}, not of nccl-tests"
    if evidence.to_its_end and not fatal:
        return _complete(evidence, stopped)
    if trouble is not None:
        return trouble, cause
    return _stopped(evidence, stopped) if stopped else _silent(evidence)


def _corrupt(evidence: Evidence) -> str | None:
    bad = [
        row for row in evidence.rows if any(half and (half.wrong or 0) > 0 for half in (row.out_of_place, row.in_place))
    ]
    if bad:
        sizes = ", ".join(str(row.size_bytes) for row in bad[:4]) + (" and more" if len(bad) > 4 else "")
        counts = [f"{half.wrong:g}" for half in (bad[0].out_of_place, bad[0].in_place) if half and half.wrong]
        return f"wrong values at {sizes} bytes ({' and '.join(counts)} at the first)"
    # A deviation, or a count, that is no number: what was compared was none either.
    odd = next(
        (one for one in evidence.not_numbers if one.column == "wrong" and NOT_FINITE.fullmatch(one.printed)), None
    )
    if odd:
        return f"wrong values: their count is {odd.printed} at {odd.size_bytes} bytes, {odd.half.replace('_', '-')}"
    if evidence.out_of_bounds:
        return f"the summary reports {evidence.out_of_bounds} out of bounds values; none of the rows printed has them"
    return None


def _complete(evidence: Evidence, stopped: Stopped | None) -> Judged:
    every = "every size was measured; then"
    ends = {
        Stopped.FAILED: (Outcome.FAILED, f"{every} the program ended with an error{_warned(evidence)}"),
        Stopped.KILLED: (Outcome.KILLED, f"{every} the program was killed{_warned(evidence)}"),
        Stopped.LIMIT: (Outcome.HUNG, f"{every} it did not end{_warned(evidence)}"),
    }
    return ends.get(stopped, (Outcome.COMPLETE, None)) if stopped else (Outcome.COMPLETE, None)


def _stopped(evidence: Evidence, stopped: Stopped) -> Judged:
    after = _after(evidence)
    if stopped is Stopped.LIMIT:
        return Outcome.HUNG, f"it stood still {after}, until its time was over{_warned(evidence)}"
    if stopped is Stopped.KILLED:
        return Outcome.KILLED, f"killed from outside {after}{_warned(evidence)}"
    if stopped is Stopped.FAILED:
        return Outcome.FAILED, f"the program ended with an error {after}{_warned(evidence, ' and printed no reason')}"
    return _silent(evidence)


def _silent(evidence: Evidence) -> Judged:
    """Outcome without a printed reason, an end or a runner."""
    if not evidence.started and not evidence.rows:
        return Outcome.EMPTY, f"no test began: nothing of nccl-tests was printed{_warned(evidence)}"
    if evidence.begun and not evidence.rows and evidence.whole:
        why = "it stood still in the first size: the table begins, and nothing more was printed"
        return Outcome.HUNG, why + _warned(evidence)
    return Outcome.TRUNCATED, f"the text ends {_after(evidence)}{_warned(evidence, '; the output gives no cause')}"


def _warned(evidence: Evidence, otherwise: str = "") -> str:
    return f"; {evidence.warning}" if evidence.warning else otherwise


def _after(evidence: Evidence) -> str:
    if not evidence.rows:
        return "before the first size"
    last = evidence.rows[-1]
    alike = sum(1 for row in evidence.rows if kind(row) == kind(last))
    of = f", {alike} of {evidence.expected} sizes" if evidence.expected else ""
    what = " of " + " ".join(str(part) for part in kind(last)[:2] if part) if alike < len(evidence.rows) else ""
    return f"after {last.size_bytes} bytes{what}{of}"
