"""outcome: a run that did not complete proves nothing; report why it ended."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import Numbers, by_size, halves, plural, size, sizes, sizes_measured
from gpuctl.nccl.model import NoNumber, Outcome, Run
from gpuctl.nccl.parsing.outcome import kind

RULE = "outcome"
BROKEN_OFF = "broken off"  # cause of a run that its user stopped with Ctrl-C
# Corrupt runs belong to the rule of that name. A run that was killed or cut off proves nothing about the fabric.
VERDICTS = {
    Outcome.FAILED: Verdict.FAIL,
    Outcome.HUNG: Verdict.FAIL,
    Outcome.KILLED: Verdict.UNKNOWN,
    Outcome.TRUNCATED: Verdict.UNKNOWN,
    Outcome.EMPTY: Verdict.UNKNOWN,
}
SUMMARIES = {
    Outcome.FAILED: "the run failed",
    Outcome.HUNG: "the run hung",
    Outcome.KILLED: "the run was killed",
    Outcome.TRUNCATED: "the log is cut off",
    Outcome.EMPTY: "no test started",
}
ADVICE = {
    Outcome.FAILED: "fix the cause; `gpuctl nccl preflight` checks for the usual ones in seconds",
    Outcome.HUNG: "`gpuctl nccl isolate` finds the node that the others wait for",
    Outcome.KILLED: "find out what killed it: the job's time limit, the scheduler, or the kernel (out of memory)",
    Outcome.TRUNCATED: "judge the complete log, or run the test again",
    Outcome.EMPTY: "fix what prevented the start; if this is a log, pass the complete output of an nccl-tests program",
}
# IBV_WC_RETRY_EXC_ERR of libibverbs: all retries went unanswered.
NO_ANSWER = re.compile(r"Got completion .* (?:error |status=)12\b")
UNANSWERED = (
    "error 12: the other side never answered; check that node, and the cable, port and adapter on both ends; "
    "`gpuctl nccl isolate` shows whether the node or the path is bad"
)
AGAIN = "run it again, and let it finish"
HOLES = "judge the complete log, not an excerpt; if it is complete, lines were lost in transit: run the test again"
NO_SUMMARY = "judge the complete log; with -d all or -o all these are the sizes of the first type or operation only"
NO_NUMBER = "run it again with more iterations (-n 20); if it persists, check this nccl-tests build and the GPU's clock"
MIXED = "the text mixes lines of several runs, or has its newest line first"
APART = (
    "judge the output of one launcher only, oldest line first; lines that name their pod (stern, JSON, `kubectl logs "
    "--prefix`) may be mixed"
)
ROUNDED = 1 << 20  # bytes: sizes below it may be rounded
OFF = 0.01  # of the average line: rows are rounded; every whole log at hand is within 0.0001 of it
MOST_CELLS = 4  # findings about cells that are not numbers


def outcome(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    if broken_off(run):
        after = f", after {plural(len(run.rows), 'row')}" if run.rows else ""
        numbers: Numbers = {"rows": len(run.rows), "outcome": str(run.outcome)}
        yield Finding(RULE, "", Verdict.UNKNOWN, f"the run was interrupted{after}: it proves nothing", numbers, AGAIN)
    elif run.outcome in VERDICTS:
        yield _bad_end(run)
    elif not run.rows:
        message = "the run ended and printed no row"
        yield Finding(RULE, "", Verdict.UNKNOWN, message, {"rows": 0}, ADVICE[Outcome.EMPTY])
    elif run.outcome is Outcome.COMPLETE:
        yield from _holes(run)
    if (disorder := _disorder(run)) is not None:
        yield disorder


def broken_off(run: Run) -> bool:
    """Return True if the user stopped the run: missing results are not a fault then."""
    return run.outcome is Outcome.KILLED and run.cause == BROKEN_OFF


def _bad_end(run: Run) -> Finding:
    why = run.cause or "the log gives no cause"
    after = f" after {plural(len(run.rows), 'row')}" if run.rows else " before its first row" if run.ranks else ""
    message = f"{SUMMARIES[run.outcome]}{after}: {why}"
    if run.outcome is Outcome.EMPTY:
        message = run.cause or SUMMARIES[run.outcome]
    numbers: Numbers = {"rows": len(run.rows), "sizes_announced": run.sizes_announced, "outcome": str(run.outcome)}
    advice = UNANSWERED if NO_ANSWER.search(why) else ADVICE[run.outcome]
    return Finding(RULE, "", VERDICTS[run.outcome], message, numbers, advice)


def _gap(every: Sequence[int]) -> tuple[int, int] | None:
    """First pair of consecutive sizes that are too far apart for one factor or one step.

    Small sizes are rounded to the number of ranks, so only gaps that end at 1 MiB and above count.
    """
    sizes_found = sorted(set(every))
    pairs = list(pairwise(sizes_found))
    if len({high - low for low, high in pairs}) < 2:
        return None
    least = min(high / low for low, high in pairs)
    return next(((low, high) for low, high in pairs if high >= ROUNDED and high / low > 1.5 * least), None)


def _holes(run: Run) -> Iterator[Finding]:
    """Missing rows, a missing summary, or cells that are not numbers."""
    if (missing := _missing(run)) is not None:
        yield missing
    if run.avg_busbw_gbs is None and run.out_of_bounds is None:
        message = "the log lacks the summary (out of bounds values and average), the last lines that a run prints"
        numbers: Numbers = {
            "rows": len(run.rows),
            "sizes_measured": sizes_measured(run),
            "sizes_announced": run.sizes_announced,
        }
        yield Finding(RULE, "", Verdict.UNKNOWN, message, numbers, NO_SUMMARY)
    for one in run.not_numbers[:MOST_CELLS]:
        yield _no_number(one, len(run.not_numbers))


def _disorder(run: Run) -> Finding | None:
    """A size after a larger one, or twice: the rows are of several runs. The first size may come again (-N)."""
    latest: dict[Hashable, int] = {}
    first: dict[Hashable, int] = {}
    for row in run.rows:
        of, now = kind(row), row.size_bytes
        before = latest.get(of, -1)
        # Small sizes are rounded to the number of ranks, so that the same may follow.
        if now != first.setdefault(of, now) and (now < before or now == before >= ROUNDED):
            message = f"the rows are not in order of size: {size(now)} comes after {size(before)}"
            numbers: Numbers = {"rows": len(run.rows), "size_bytes": now, "before_bytes": before}
            return Finding(RULE, "", Verdict.UNKNOWN, f"{message}; {MIXED}", numbers, APART)
        latest[of] = now
    return None


def _missing(run: Run) -> Finding | None:
    """First sign of missing rows: the heading, a gap, "..." in the text, or the average of the summary."""
    announced, measured = run.sizes_announced, sizes_measured(run)
    numbers: Numbers = {"rows": len(run.rows), "sizes_measured": measured, "sizes_announced": announced}
    if announced is not None and measured < announced:
        where = sizes(row.size_bytes for row in run.rows)
        message = (
            f"the run ended, but the log has only {measured} of the {announced} sizes that its heading announces "
            f"({where})"
        )
        return Finding(RULE, "", Verdict.UNKNOWN, message, numbers, HOLES)
    if announced is None and (gap := _gap([row.size_bytes for row in by_size(run)])):
        message = (
            f"the log lacks the sizes between {size(gap[0])} and {size(gap[1])}, and the heading that announces them"
        )
        numbers = {"rows": len(run.rows), "below_bytes": gap[0], "above_bytes": gap[1]}
        return Finding(RULE, "", Verdict.UNKNOWN, message, numbers, HOLES)
    if announced is None and run.left_out:
        message = f'the text is an excerpt: "..." replaces lines, {plural(len(run.rows), "row")} remain'
        return Finding(RULE, "", Verdict.UNKNOWN, message, numbers, HOLES)
    return _average_of_others(run)


def _average_of_others(run: Run) -> Finding | None:
    """Average over other rows: nccl-tests averages the busbw of both halves of all rows."""
    speeds = [half.busbw_gbs for row in run.rows for _, half in halves(row)]
    if run.avg_busbw_gbs is None or run.not_numbers or not speeds:
        return None
    average = sum(speeds) / len(speeds)
    if abs(average - run.avg_busbw_gbs) <= max(OFF * run.avg_busbw_gbs, 0.01):
        return None
    rows = plural(len(run.rows), "row")
    message = f"the log reports an average of {run.avg_busbw_gbs:g} GB/s, but its {rows} average {average:g}"
    numbers: Numbers = {
        "rows": len(run.rows),
        "average_gbs": run.avg_busbw_gbs,
        "average_of_rows_gbs": round(average, 3),
    }
    return Finding(RULE, "", Verdict.UNKNOWN, f"{message}: rows are missing or changed", numbers, HOLES)


def _no_number(one: NoNumber, cells: int) -> Finding:
    column, half = one.column.partition("_")[0], one.half.replace("_", "-")
    message = f"{column} {one.printed} at {size(one.size_bytes)}, {half}: not a number, so this size was not measured"
    if one.column == "wrong":
        message = f"the count of wrong values is {one.printed} at {size(one.size_bytes)}, {half}: not a number"
    numbers: Numbers = {"size_bytes": one.size_bytes, "printed": one.printed, "cells": cells}
    return Finding(RULE, size(one.size_bytes), Verdict.UNKNOWN, message, numbers, NO_NUMBER)
