"""Bandwidth arithmetic: the speed of a run, bus factors, and line rates. GB/s are decimal, one direction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from statistics import median

from gpuctl.nccl.model import Outcome, Row, Run, Timing

# nccl-tests, doc/PERFORMANCE.md: busbw = algbw x factor, so that it does not depend on the number of ranks n.
_SHARED: Callable[[int], float] = lambda n: (n - 1) / n  # noqa: E731 - three names for one line of a table
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": _SHARED,
    "all_gather": _SHARED,
    "alltoall": _SHARED,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "sendrecv": lambda n: 1.0,
}
# gather and scatter have a factor of their own that no source here gives.
COLLECTIVES = (*FACTORS, "gather", "scatter")
MOST_RANKS = 1 << 20
# Shares of the usual bandwidth: the published rows of 365/350/320 and 378/360/330 GB/s have nearly the same ones.
WARN, FAIL = 0.95, 0.87
TOP = 8  # rows of at least an eighth of the largest size count: four of them with `-f 2`


def bus_factor(collective: str, ranks: int) -> float | None:
    """Ratio of busbw to algbw for `ranks` (1 or more); None for a collective whose factor is unknown."""
    return FACTORS[collective](ranks) if collective in FACTORS else None


def accelerator_rate(busbw_gbs: float, nodes: int, ranks: int) -> float:
    """GB/s through the adapter of one accelerator with a hierarchical algorithm: busbw (k-1)/(n-1).

    k nodes (2 or more), n ranks. Not for a ring. Source: ml-engineering, network/README.md, where 381.8 GB/s on 4 x
    8 B200 is 36.95 GB/s of the 50 that an adapter has.
    """
    return busbw_gbs * (nodes - 1) / (ranks - 1)


def ring_share(busbw_gbs: float, line_rate_gbs: float) -> float:
    """Share of a node's line rate that a ring fills: all bytes that busbw counts leave each node once.

    Our arithmetic: 364.9 GB/s on p5en, whose node has 400, are 0.91. Not for a tree between two nodes, which moves
    less than busbw counts (NCCL, src/graph/tuning.cc, uses the whole rate between nodes there, half of it beyond).
    """
    return busbw_gbs / line_rate_gbs


def ranks_by_factor(collective: str, row: Row) -> int | None:
    """Number of ranks, derived from a row's busbw/algbw; None unless exactly one number fits.

    nccl-tests rounds what it prints: busbw to 0.01 GB/s, the time to its last digit (half of the last of four or
    more digits is assumed at most). This distinguishes up to about a hundred ranks at large sizes, fewer at small
    ones.
    """
    half = row.out_of_place or row.in_place
    if half is None or bus_factor(collective, 2) is None:
        return None

    def factor(ranks: int) -> float:
        return bus_factor(collective, ranks) or 0.0

    low, high = _factor_between(row.size_bytes, half)
    # Factors rise with the number of ranks, or are the same for all: then the next number fits as well.
    least = bisect_left(range(1, MOST_RANKS), low, key=factor) + 1
    return least if 0 < low <= factor(least) <= high < factor(least + 1) else None


def _factor_between(size_bytes: int, half: Timing) -> tuple[float, float]:
    """Least and greatest busbw/algbw that the rounded numbers allow."""
    if size_bytes <= 0 or half.time_us <= 0 or half.busbw_gbs <= 0:
        return 0.0, 0.0
    off = half.time_us * 5e-5 if half.time_us < 1e4 else 0.5
    algbw = [size_bytes / ((half.time_us + side) * 1e3) for side in (off, -off)]
    return (half.busbw_gbs - 0.005) / algbw[1], (half.busbw_gbs + 0.005) / algbw[0]


def speed(run: Run) -> float | None:
    """Return the median bus bandwidth (GB/s) over the largest sizes, in place and out of place.

    A few odd rows cannot move it. None if the run is not complete or printed no bandwidth above zero.
    """
    if run.outcome is not Outcome.COMPLETE or not run.rows:
        return None
    bandwidths = list(_bandwidths(run.rows))
    return median(bandwidths) if bandwidths else None


def _bandwidths(rows: tuple[Row, ...]) -> Iterator[float]:
    least = max(row.size_bytes for row in rows) / TOP
    for row in rows:
        if row.size_bytes >= least:
            for half in (row.out_of_place, row.in_place):
                if half is not None and half.busbw_gbs > 0:
                    yield half.busbw_gbs
