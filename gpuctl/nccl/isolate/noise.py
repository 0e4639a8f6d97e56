"""The noise of healthy runs: the model that every accusation rests on.

A run's shortfall is the natural logarithm of (reference / speed): 0.22 for a run slower by a fifth. A healthy run's
shortfall follows Student's t distribution with three degrees of freedom around zero (its tails fall with the third
power only, so a few outliers are expected). Besides, with a small chance a passing disturbance (other traffic, a retry)
costs an exponentially distributed amount. A healthy run also fails with a small chance. These chances start at the
values assumed below and rise with every slow or failed run that turns out to be chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuctl.nccl.isolate.speed_clusters import LEAST, two_speeds

T3_PEAK = 2 / (math.pi * math.sqrt(3))  # density of Student's t (3) at zero
T3_HALF = 0.7649  # median absolute deviation of Student's t (3) at scale one
PASSING_MEAN = 0.2  # mean shortfall by a passing disturbance
WRONG = 1e-6  # chance that a healthy run prints wrong values; not learnt from runs, as wrong sums are never noise
ASSUMED_RUNS, ASSUMED_SLOW, ASSUMED_FAILED = 500, 1.0, 0.5  # prior observations: 1 in 500 slow, 1 in 1000 failed
FEW = 16  # below so many runs they cannot show the spread by themselves
FEWER = 8  # below so many runs they hardly show it at all
A_FEW = 0.1  # share of slow runs that the median tolerates
LEAD = 0.05  # natural logarithm: from so far ahead of all others on, a single run is a speed
A_SPEED = 0.25  # share of the faster half that makes a separate speed
OF_HALF = 1.7  # spread of a whole sample over that of its faster half (1.6 for Laplace, 1.7 for normal scatter)
FAR_SPREADS = 6.0  # a run is clearly slow if its shortfall is so many spreads, and no less than LEAST


@dataclass(frozen=True)
class Reference:
    """The speed of a healthy run of one class (GB/s), its relative spread (scale of the t distribution), the runs."""

    gbs: float
    scale: float
    count: int


@dataclass(frozen=True)
class Noise:
    """The density of a healthy run's shortfall. `slow`, `failed`: the chances of a passing disturbance of each sort.

    `guessed`: the scale comes from so few runs that it is chosen rather too wide.
    """

    scale: float
    slow: float
    failed: float
    guessed: bool

    def density(self, shortfall: float) -> float:
        """The density for a healthy run that completed."""
        t = shortfall / self.scale
        core = (1 - self.slow) * (T3_PEAK / self.scale / (1 + t * t / 3) ** 2)
        return core if shortfall <= 0 else core + self.slow * _passing(shortfall)

    def densities(self, shortfalls: Sequence[float], less: float) -> list[float]:
        """The density of each shortfall, reduced by `less`; the same as `density`, in one pass."""
        core, width, passing = (1 - self.slow) * T3_PEAK / self.scale, 3 * self.scale**2, self.slow / PASSING_MEAN
        gaps = [shortfall - less for shortfall in shortfalls]
        return [
            core / (1 + gap * gap / width) ** 2 + (0.0 if gap <= 0 else passing * math.exp(-gap / PASSING_MEAN))
            for gap in gaps
        ]

    def passing(self, shortfall: float) -> float:
        """The probability that a healthy run's shortfall comes from a passing disturbance, not from usual scatter."""
        return self.slow * _passing(shortfall) / self.density(shortfall)


def _passing(shortfall: float) -> float:
    return math.exp(-shortfall / PASSING_MEAN) / PASSING_MEAN if shortfall > 0 else 0.0


def reference(speeds: Sequence[float]) -> Reference | None:
    """The reference of one class of runs, given their speeds in GB/s; None without runs.

    With many runs: the median and the median deviation, on which a few bad runs have little effect; clearly slow runs
    are left out if they are more than a few, which happens as suspects are repeated. With few runs: the median of the
    faster half, as faults only slow down, and a spread of at least 1 % (1.5 % below eight runs), because a handful of
    equal numbers does not prove that the next one will be equal.
    """
    if not speeds:
        return None
    every = sorted(speeds)
    faster = _of_one_speed(every[-max(1, len(every) // 2) :], many=len(every) >= FEWER)
    healthy = faster if len(every) < FEW else _without_slow(every, faster)
    middle = median(healthy)
    spread = _spread(healthy, middle)
    least = 0.002 if len(speeds) >= FEW else 0.01 if len(speeds) >= FEWER else 0.015
    return Reference(middle, max(least, spread), len(speeds))


def _of_one_speed(speeds: Sequence[float], many: bool = False) -> Sequence[float]:
    """The faster ones of sorted speeds if there clearly are two, as more than half may be bad; else all of them.

    `many`: of many runs, a single fast one is a speed only if it leads by LEAD, as it is the first of many.
    """
    limit = two_speeds([math.log(gbs) for gbs in speeds])
    fast = [gbs for gbs in speeds if limit is not None and math.log(gbs) > limit]
    if len(fast) < max(1, A_SPEED * len(speeds)):
        return speeds
    is_outlier = many and len(fast) == 1 and len(speeds) > 1 and math.log(fast[0] / speeds[-2]) < LEAD
    return speeds if is_outlier else fast


def _without_slow(speeds: Sequence[float], faster: Sequence[float]) -> Sequence[float]:
    """All speeds, without those of a lower speed, or far below the usual one of the faster half if more than a few."""
    one = _of_one_speed(speeds)
    if len(speeds) - len(one) > A_FEW * len(speeds):
        return one
    usual = median(faster)
    least = usual * math.exp(-max(LEAST, FAR_SPREADS * OF_HALF * _spread(faster, usual)))
    near = [gbs for gbs in speeds if gbs >= least]
    return speeds if len(speeds) - len(near) <= A_FEW * len(speeds) else near


def at_least_across(references: Mapping[str, Reference], runs: int) -> Mapping[str, Reference]:
    """The references, that within racks no slower than that across: nothing else but slow nodes can make it slower.

    `runs`: the least number of runs across racks that show their speed.
    """
    within, across = references.get("within"), references.get("across")
    if not within or not across or across.count < runs or across.gbs <= within.gbs * math.exp(LEAST):
        return references
    return {**references, "within": replace(within, gbs=across.gbs)}


def scatter(speeds: Sequence[float]) -> float:
    """The spread of these speeds (at least one) as far as they show it, without those of a lower speed."""
    healthy = _of_one_speed(sorted(speeds))
    return _spread(healthy, median(healthy))


def _spread(speeds: Sequence[float], middle: float) -> float:
    return median(abs(math.log(middle / gbs)) for gbs in speeds) / T3_HALF


def chances(runs: int, slow: float, failed: int) -> tuple[float, float]:
    """The chances that a healthy run is slow by a disturbance, or fails, from the number of such runs so far."""
    every = runs + ASSUMED_RUNS
    return (slow + ASSUMED_SLOW) / every, (failed + ASSUMED_FAILED) / every
