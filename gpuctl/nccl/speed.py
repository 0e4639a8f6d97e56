"""How fast a run was, as one number that a few odd rows cannot move."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gpuctl.nccl.model import Outcome, Row, Run

TOP = 8  # rows of at least an eighth of the largest size count: four of them with `-f 2`


def speed(run: Run) -> float | None:
    """The median bus bandwidth (GB/s) over the largest sizes, in place and out of place alike.

    None where the run is not complete or printed no bandwidth above zero: what ended early has no speed.
    """
    if run.outcome is not Outcome.COMPLETE or not run.rows:
        return None
    found = list(_bandwidths(run.rows))
    return median(found) if found else None


def _bandwidths(rows: tuple[Row, ...]) -> Iterator[float]:
    least = max(row.size_bytes for row in rows) / TOP
    for row in rows:
        if row.size_bytes >= least:
            for half in (row.out_of_place, row.in_place):
                if half is not None and half.busbw_gbs > 0:
                    yield half.busbw_gbs
