"""How much likelier the runs are if something is bad than by chance alone.

A cause is either slow (it takes a shortfall d from every run it spoils, d unknown: mostly exponential with mean 0.3) or
failing. Mostly it spoils every run of its own ("hard"), else it comes and goes and spoils a share q of them. The odds
are the mean of the likelihood over all of these, divided by that of chance. Under chance such odds have mean one
however often and whenever one looks, so they reach 1/x with a chance of at most x (Ville's inequality): that is what
lets an isolation repeat runs until it is sure, and still keep its word about false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuctl.nccl.isolate.model import Cause, Kind
from gpuctl.nccl.isolate.noise import WRONG, Noise
from gpuctl.nccl.isolate.observations import Evidence, Observation

# (share of its runs that are spoilt, how probable we hold such a cause beforehand)
MAY_BE_FLAKY = ((0.99, 0.61), (0.75, 0.13), (0.5, 0.13), (0.25, 0.13))
# What a whole rack shares is always there or not: one that comes and goes is not told from its nodes.
ALWAYS = ((0.999, 1.0),)
MEAN_SHORTFALL = 0.3
# The share that may be of any size, as 1/(1+d)²: a fall-back to TCP takes 99 % and more, where an exponential is far
# below the noise, whose tails are a power law, and the slowest node of all would count as chance.
ANY_SHORTFALL = 0.1
AROUND = 3  # steps of one spread, to each side of each shortfall seen, at which an unknown shortfall is tried
NEVER = -math.inf


def spoils(cause: Cause, run: Observation) -> bool:
    """Whether a pair run would show the cause."""
    if cause.kind is Kind.NODE:
        return cause.names[0] in run.nodes
    if cause.kind is Kind.LINK:
        return set(cause.names) == set(run.nodes)
    if cause.kind is Kind.UPLINK:
        return run.place == "across" and cause.names[0] in run.racks
    return cause.names[0] in run.racks


def runs_of(cause: Cause, evidence: Evidence) -> list[Observation]:
    """The pair runs that would show it and can be compared."""
    shared = cause.kind in (Kind.UPLINK, Kind.RACK)
    found = (evidence.runs_by_rack if shared else evidence.runs_by_node).get(cause.names[0], [])
    return [run for run in found if run.informative and spoils(cause, run)]


def odds(cause: Cause, runs: Sequence[Observation], noise: Noise, least: float) -> float:
    """Natural logarithm of the odds; `runs` are those it would spoil, `least` the smallest shortfall it may have."""
    shares = ALWAYS if cause.kind in (Kind.UPLINK, Kind.RACK) else MAY_BE_FLAKY
    return _either(runs, noise, shares, least)


def odds_of_a_rival(cause: Cause, runs: Sequence[Observation], noise: Noise, least: float) -> float:
    """The same for what is to be ruled out: an uplink that comes and goes looks like a path that it was seen on."""
    return _either(runs, noise, ALWAYS if cause.kind is Kind.RACK else MAY_BE_FLAKY, least)


def _either(runs: Sequence[Observation], noise: Noise, shares: Sequence[tuple[float, float]], least: float) -> float:
    slow, failing = _slow(runs, noise, shares, least), _failing(runs, noise, shares)
    return _sum([slow, failing]) - math.log(2)


def failing_rather_than_slow(runs: Sequence[Observation], noise: Noise, least: float) -> bool:
    """Of a cause: in which of the two ways it is bad."""
    return _failing(runs, noise, MAY_BE_FLAKY) > _slow(runs, noise, MAY_BE_FLAKY, least)


def in_the_same_way(runs: Sequence[Observation], some: Sequence[Observation], noise: Noise, least: float) -> float:
    """The odds by some of its runs alone, of being bad in the way in which all of its runs show it."""
    if failing_rather_than_slow(runs, noise, least):
        return _failing(some, noise, MAY_BE_FLAKY) - math.log(2)
    return _slow(some, noise, MAY_BE_FLAKY, least) - math.log(2)


def _slow(runs: Sequence[Observation], noise: Noise, shares: Sequence[tuple[float, float]], least: float) -> float:
    gaps = [run.shortfall for run in runs if run.shortfall is not None]
    healthy = [noise.density(gap) for gap in gaps]
    tried = {round(gap / noise.scale) + step for gap in gaps if gap > least for step in range(-AROUND, AROUND + 1)}
    found = [NEVER]
    for number in tried:
        shortfall = number * noise.scale
        if shortfall < least:
            continue
        prior = math.log(noise.scale * _held(shortfall))
        ratios = [noise.density(gap - shortfall) / base for gap, base in zip(gaps, healthy, strict=True)]
        for share, held in shares:
            found.append(prior + math.log(held) + sum(math.log(share * ratio + 1 - share) for ratio in ratios))
    return _sum(found)


def _held(shortfall: float) -> float:
    """How probable we hold a shortfall of this size beforehand; a density."""
    usual = math.exp(-shortfall / MEAN_SHORTFALL) / MEAN_SHORTFALL
    return (1 - ANY_SHORTFALL) * usual + ANY_SHORTFALL / (1 + shortfall) ** 2


def _failing(runs: Sequence[Observation], noise: Noise, shares: Sequence[tuple[float, float]]) -> float:
    wrong = sum(run.wrong for run in runs)
    failed = sum(bool(run.failed) for run in runs) - wrong
    fine = len(runs) - failed - wrong
    if not failed and not wrong:
        return NEVER
    return _sum(
        [
            math.log(held)
            + failed * math.log(share / noise.failed + 1 - share)
            + wrong * math.log(share / WRONG + 1 - share)
            + fine * math.log(1 - share)
            for share, held in shares
        ]
    )


def _sum(logs: Sequence[float]) -> float:
    """The logarithm of a sum of exponentials."""
    top = max(logs)
    return top if top == NEVER else top + math.log(sum(math.exp(value - top) for value in logs))
