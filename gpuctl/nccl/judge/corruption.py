"""corruption: a single wrong value is a failure at any speed; unchecked values are UNKNOWN."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import Numbers, by_size, halves, size, sizes
from gpuctl.nccl.model import Outcome, Row, Run

RULE = "corruption"
ADVICE = (
    "take these nodes out of service; `gpuctl nccl isolate` finds the bad one; then check Xids, ECC and row remaps "
    "there, and the versions of NCCL, plugin and driver"
)


def corruption(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    rows = by_size(run)
    wrong = [row for row in rows if _wrong(row) >= 1]
    for row in wrong:
        numbers = {f"{name.replace('-', '_')}_wrong": half.wrong for name, half in halves(row)}
        message = f"wrong values at {size(row.size_bytes)}: " + _counts(row)
        yield Finding(RULE, size(row.size_bytes), Verdict.FAIL, message, numbers, ADVICE)
    if wrong:
        return
    if run.outcome is Outcome.CORRUPT or (run.out_of_bounds or 0) > 0:
        message = f"the run found wrong values: {run.cause or 'the log does not name the size'}"
        yield Finding(RULE, "", Verdict.FAIL, message, {"out_of_bounds": run.out_of_bounds}, ADVICE)
    elif rows:
        yield _checked(rows)


def _checked(rows: list[Row]) -> Finding:
    """OK if every size was checked, else UNKNOWN."""
    unchecked = [row for row in rows if all(half.wrong is None for _, half in halves(row))]
    numbers: Numbers = {"sizes_checked": len(rows) - len(unchecked), "sizes_not_checked": len(unchecked), "wrong": 0}
    if not unchecked:
        message = f"no wrong value at {sizes(row.size_bytes for row in rows)}"
        return Finding(RULE, "", Verdict.OK, message, numbers)
    message = f"results were not checked at {sizes(row.size_bytes for row in unchecked)}"
    return Finding(RULE, "", Verdict.UNKNOWN, message, numbers, "run it again without `-c 0`")


def _wrong(row: Row) -> float:
    # Older nccl-tests printed the greatest deviation, far below 1, where newer ones count values.
    return max((half.wrong or 0 for _, half in halves(row)), default=0)


def _counts(row: Row) -> str:
    return ", ".join(f"{half.wrong:g} {name}" for name, half in halves(row) if half.wrong)
