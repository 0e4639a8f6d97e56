"""drop: bandwidth grows with the message size and stays there; a fall is a fault or a change of protocol.

Small messages measure latency and are noisy, and NCCL changes its protocol (LL, LL128, Simple) on the way up, which
may cost a little: only sizes count from where half of the run's best bandwidth was reached, and a fall of a tenth is
no fall. A fault shows out of place and in place alike; a fall in one of them alone may be a disturbance.

The limits are this project's own, tried on recorded runs: healthy ones, with dips up to 13 % at protocol changes, stay
without a finding; nccl#1453 (29.5 GB/s at 32 MiB, 5.3 at 64 MiB and above) does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.baselines.model import Book
from gpuctl.nccl.context import RunContext
from gpuctl.nccl.messages import GROWN, by_kind, grown, halves, size, sizes
from gpuctl.nccl.model import Row, Run

RULE = "drop"
LEFT = 0.8  # of the best bandwidth at a smaller size: less is a fall
AGAIN = "run it again: only a fall at the same size again is a fault"
ADVICE = (
    f"{AGAIN}; then look for lost packets and pauses on the adapters and switches, and for a protocol or algorithm "
    "change at that size (NCCL_DEBUG_SUBSYS=TUNING)"
)


@dataclass(frozen=True)
class Fall:
    """A fall at one size, in one half of the row: best busbw at a smaller size, and what is left (GB/s)."""

    size_bytes: int
    half: str
    best: float
    left: float

    @property
    def share(self) -> float:
        return self.left / self.best


def drop(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    kinds = by_kind(run)
    found = [finding for rows in kinds for finding in _of_kind(rows)]
    yield from found
    # One size alone has nothing to fall from: nothing is said then.
    counted = {row.size_bytes for rows in kinds if len(judged := grown(rows)) > 1 for row in judged}
    if not found and counted:
        message = f"no sudden drop over the {len(counted)} sizes that are large enough to judge, {sizes(counted)}"
        yield Finding(RULE, "", Verdict.OK, message, {"sizes": len(counted), "least_share": LEFT})


def _of_kind(rows: Sequence[Row]) -> Iterator[Finding]:
    """Falls in the rows of one type, operation and root."""
    falls = [fall for name in ("out-of-place", "in-place") for fall in _falls(rows, name)]
    for group in _neighbours(rows, falls):
        yield _finding(group, rows)


def _falls(rows: Sequence[Row], name: str) -> Iterator[Fall]:
    speeds = [(row.size_bytes, half.busbw_gbs) for row in rows for half_name, half in halves(row) if half_name == name]
    peak = max((speed for _, speed in speeds), default=0.0)
    best = 0.0
    for size_bytes, speed in speeds:
        if best > 0 and best >= GROWN * peak and speed < LEFT * best:
            yield Fall(size_bytes, name, best, speed)
        best = max(best, speed)


def _neighbours(rows: Sequence[Row], falls: Sequence[Fall]) -> Iterator[list[Fall]]:
    """Group falls at consecutive sizes."""
    group: list[Fall] = []
    for row in rows:
        at_size = [fall for fall in falls if fall.size_bytes == row.size_bytes]
        if not at_size and group:
            yield group
            group = []
        group = group + at_size
    if group:
        yield group


def _finding(group: Sequence[Fall], rows: Sequence[Row]) -> Finding:
    worst = min(group, key=lambda fall: fall.share)
    where = sorted({fall.size_bytes for fall in group})
    both = _in_both(group, rows)
    stays = "it does not recover" if where[-1] == rows[-1].size_bytes and len(where) > 1 else ""
    message = f"busbw falls {worst.half} from {worst.best:g} to {worst.left:g} GB/s at {size(worst.size_bytes)}"
    more = [
        stays,
        f"below at {sizes(where)}" if len(where) > 1 else "",
        "" if both else "in one half of the rows only",
    ]
    numbers: dict[str, float | int | str | None] = {
        "best_before_gbs": worst.best,
        "left_gbs": worst.left,
        "share": round(worst.share, 3),
        "least_share": LEFT,
        "from_bytes": where[0],
        "to_bytes": where[-1],
    }
    verdict, advice = (Verdict.FAIL, ADVICE) if both else (Verdict.WARN, AGAIN)
    return Finding(RULE, sizes(where), verdict, "; ".join([message, *filter(None, more)]), numbers, advice)


def _in_both(group: Sequence[Fall], rows: Sequence[Row]) -> bool:
    """Return True if at one of these sizes every printed half fell."""
    printed = {row.size_bytes: {name for name, _ in halves(row)} for row in rows}
    fallen: dict[int, set[str]] = {}
    for fall in group:
        fallen.setdefault(fall.size_bytes, set()).add(fall.half)
    return any(halves_here == printed[size_bytes] for size_bytes, halves_here in fallen.items())
