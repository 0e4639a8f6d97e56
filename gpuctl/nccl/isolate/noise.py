"""How healthy runs scatter: the model that every accusation rests on.

A run's shortfall is the natural logarithm of (reference / speed): 0.22 for a fifth slower. A healthy run's shortfall
follows Student's t with three degrees of freedom around zero (its tails fall with the third power only, so a few wild
runs are expected), and besides, with a small chance, something passing (traffic of others, a retry) takes an
exponentially distributed amount away. A healthy run fails with a small chance, too. These chances start at values that
we assume (below) and rise with every slow or failed run that turned out to be nobody's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuctl.nccl.isolate.speed_clusters import between

T3_PEAK = 2 / (math.pi * math.sqrt(3))  # density of Student's t (3) at zero
T3_HALF = 0.7649  # half of it lies within this of zero: the median absolute deviation of scale one
PASSING_MEAN = 0.2  # mean shortfall by something passing
WRONG = 1e-6  # the chance that a healthy run prints wrong values; it is not learnt from runs: sums are never noise
ASSUMED_RUNS, ASSUMED_SLOW, ASSUMED_FAILED = 500, 1.0, 0.5  # as if seen before: 1 in 500 slow, 1 in 1000 failed
FEW = 16  # below so many runs the spread cannot be had from them alone
A_FEW = 0.1  # the share of slow runs that the median bears
A_SPEED = 0.25  # the share of the faster half that makes a speed of its own
FAR, FAR_SPREADS = 0.12, 6.0  # a shortfall above both, the latter in spreads, is clearly slow


@dataclass(frozen=True)
class Reference:
    """What a healthy run of one class reaches (GB/s), and its relative spread (scale of the t distribution)."""

    gbs: float
    scale: float
    count: int


@dataclass(frozen=True)
class Noise:
    """Densities of a healthy run's shortfall; `slow` and `failed` are the chances of something passing.

    `guessed`: whether the scale comes from so few runs that it is rather too wide than known.
    """

    scale: float
    slow: float
    failed: float
    guessed: bool

    def density(self, shortfall: float) -> float:
        """Of a healthy run that ended."""
        t = shortfall / self.scale
        core = T3_PEAK / self.scale / (1 + t * t / 3) ** 2
        return (1 - self.slow) * core + self.slow * _passing(shortfall)

    def passing(self, shortfall: float) -> float:
        """How probably a healthy run's shortfall came from something passing, rather than from the usual scatter."""
        return self.slow * _passing(shortfall) / self.density(shortfall)


def _passing(shortfall: float) -> float:
    return math.exp(-shortfall / PASSING_MEAN) / PASSING_MEAN if shortfall > 0 else 0.0


def reference(speeds: Sequence[float]) -> Reference | None:
    """Of one class of runs; None for none.

    Of many runs the median and the median deviation, which a few bad ones hardly move; what is clearly slow is left
    out where it is more than a few, as runs of suspects are. Of few runs the median of their faster half, as faults
    only ever slow down, with a spread that is never taken to be below 1 % (1.5 % for less than eight runs): a handful
    of equal numbers does not prove that the next one will be equal.
    """
    if not speeds:
        return None
    every = sorted(speeds)
    faster = _of_one_speed(every[-max(1, len(every) // 2) :])
    found = faster if len(every) < FEW else _without_slow(every, faster)
    middle = median(found)
    spread = _spread(found, middle)
    least = 0.002 if len(speeds) >= FEW else 0.01 if len(speeds) >= 8 else 0.015
    return Reference(middle, max(least, spread), len(speeds))


def _of_one_speed(found: Sequence[float]) -> Sequence[float]:
    """The faster ones where they clearly part in two, as bad runs may be more than half; a wild one is no speed."""
    limit = between([math.log(value) for value in found], FAR)
    fast = [value for value in found if limit is not None and math.log(value) > limit]
    return fast if len(fast) >= A_SPEED * len(found) else found


def _without_slow(found: Sequence[float], faster: Sequence[float]) -> Sequence[float]:
    """All, where few are far below the usual one of the faster half; else those that are not."""
    usual = median(faster)
    least = usual * math.exp(-max(FAR, FAR_SPREADS * _spread(faster, usual)))
    near = [value for value in found if value >= least]
    return found if len(found) - len(near) <= A_FEW * len(found) else near


def _spread(found: Sequence[float], middle: float) -> float:
    return median(abs(math.log(middle / value)) for value in found) / T3_HALF


def chances(runs: int, slow: float, failed: int) -> tuple[float, float]:
    """Of a healthy run being slow by something passing or failing, after so many of these turned out to be nobody's."""
    every = runs + ASSUMED_RUNS
    return (slow + ASSUMED_SLOW) / every, (failed + ASSUMED_FAILED) / every
