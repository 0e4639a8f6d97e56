"""Likelihood ratios: how much likelier the runs are with a cause than by chance alone.

A cause is either slow (it adds an unknown shortfall d to every run it spoils, mostly exponential with mean 0.3) or
failing. Usually it spoils all of its runs (a hard fault), otherwise it is intermittent and spoils a share q of them.
The odds are the mean likelihood over all of these models, divided by the likelihood under chance. Under chance such
odds have mean one however often and whenever they are computed, so they reach 1/x with a chance of at most x (Ville's
inequality). Therefore an isolation may repeat runs until it is sure and still keep its rate of false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import truediv

from gpuctl.nccl.isolate.model import Cause, Kind
from gpuctl.nccl.isolate.noise import WRONG, Noise
from gpuctl.nccl.isolate.observations import Evidence, Observation

# (share of its runs that a cause spoils, prior probability of such a cause)
MAY_BE_FLAKY = ((0.99, 0.61), (0.75, 0.13), (0.5, 0.13), (0.25, 0.13))
# A part that a whole rack shares is either bad or not: an intermittent one cannot be told from its nodes.
ALWAYS = ((0.999, 1.0),)
MEAN_SHORTFALL = 0.3
# Prior share of shortfalls of any size, as 1/(1+d)²: a fall-back to TCP takes 99 % and more. There an exponential is
# far below the noise, whose tails follow a power law, and the slowest node of all would count as chance.
ANY_SHORTFALL = 0.1
Shares = tuple[tuple[float, float], ...]  # see MAY_BE_FLAKY
AROUND = 3  # an unknown shortfall is tried at so many steps of one spread to each side of every observed shortfall
SAFE = 16  # ratios of healthy to bad are below 1e17, as the tails of the noise fall with a power
NEVER = -math.inf


def spoils(cause: Cause, run: Observation) -> bool:
    """True if a pair run would show the cause."""
    if cause.kind is Kind.NODE:
        return cause.names[0] in run.nodes
    if cause.kind is Kind.LINK:
        return set(cause.names) == set(run.nodes)
    if cause.kind is Kind.UPLINK:
        return run.place == "across" and cause.names[0] in run.racks
    return cause.names[0] in run.racks


def runs_of(cause: Cause, evidence: Evidence) -> list[Observation]:
    """The pair runs that would show the cause and are evidence."""
    if cause.kind is Kind.LINK:
        runs = evidence.runs_by_pair.get(cause.names, [])
    elif cause.kind is Kind.NODE:
        runs = evidence.runs_by_node.get(cause.names[0], [])
    else:
        runs = evidence.runs_by_rack.get(cause.names[0], [])
    return [run for run in runs if run.informative and (cause.kind is not Kind.UPLINK or run.place == "across")]


def odds(cause: Cause, runs: Sequence[Observation], noise: Noise, least: float) -> float:
    """Natural logarithm of the odds. `runs`: those the cause would spoil; `least`: its smallest possible shortfall."""
    shares = ALWAYS if cause.kind in (Kind.UPLINK, Kind.RACK) else MAY_BE_FLAKY
    return _either(runs, noise, shares, least)


def odds_of_a_rival(cause: Cause, runs: Sequence[Observation], noise: Noise, least: float) -> float:
    """The odds of a cause to rule out. It may be intermittent: such an uplink looks like a path that runs over it."""
    return _either(runs, noise, ALWAYS if cause.kind is Kind.RACK else MAY_BE_FLAKY, least)


def _either(runs: Sequence[Observation], noise: Noise, shares: Shares, least: float) -> float:
    slow, failing = _slow(runs, noise, shares, least), _failing(runs, noise, shares)
    return _sum([slow, failing]) - math.log(2)


def failing_rather_than_slow(runs: Sequence[Observation], noise: Noise, least: float) -> bool:
    """True if the runs fit a failing cause better than a slow one."""
    return _failing(runs, noise, MAY_BE_FLAKY) > _slow(runs, noise, MAY_BE_FLAKY, least)


def odds_of_same_model(runs: Sequence[Observation], some: Sequence[Observation], noise: Noise, least: float) -> float:
    """The odds by some runs alone for the model (failing or slow) that fits all runs better."""
    if failing_rather_than_slow(runs, noise, least):
        return _failing(some, noise, MAY_BE_FLAKY) - math.log(2)
    return _slow(some, noise, MAY_BE_FLAKY, least) - math.log(2)


def _slow(runs: Sequence[Observation], noise: Noise, shares: Shares, least: float) -> float:
    return _slow_by_shortfalls(tuple(run.shortfall for run in runs if run.shortfall is not None), noise, shares, least)


@lru_cache(maxsize=1 << 14)
def _slow_by_shortfalls(gaps: tuple[float, ...], noise: Noise, shares: Shares, least: float) -> float:
    """Cached: an isolation asks for the same runs as a cause, as a rival and as a part of another cause."""
    if len(gaps) == 1:  # then only the mean share matters
        shares = ((sum(share * probability for share, probability in shares), 1.0),)
    healthy = [noise.density(gap) for gap in gaps]
    tried = {round(gap / noise.scale) + step for gap in gaps if gap > least for step in range(-AROUND, AROUND + 1)}
    shortfalls = [shortfall for number in tried if (shortfall := number * noise.scale) >= least]
    if not shortfalls:
        return NEVER
    ratios = [list(map(truediv, noise.densities(gaps, shortfall), healthy)) for shortfall in shortfalls]
    priors = list(map(_prior_density, shortfalls))
    return math.log(noise.scale) + (_few if len(gaps) <= SAFE else _many)(priors, ratios, shares)


def _few(priors: Sequence[float], ratios: Sequence[Sequence[float]], shares: Shares) -> float:
    """The logarithm of the mean likelihood over shortfalls and shares; `ratios`: of each shortfall, at most SAFE."""
    # A run's factor is share * (ratio + spared), with the same first part for all runs.
    models = [(p * share ** len(ratios[0]), (1 - share) / share) for share, p in shares]
    prod, total = math.prod, 0.0
    for prior, of_runs in zip(priors, ratios, strict=True):
        total += prior * sum([weight * prod([ratio + spared for ratio in of_runs]) for weight, spared in models])
    return math.log(total)


def _many(priors: Sequence[float], ratios: Sequence[Sequence[float]], shares: Shares) -> float:
    """As _few, for any number of runs: their product would overflow, so it is taken in parts."""
    logs = []
    for prior_density, of_runs in zip(priors, ratios, strict=True):
        prior = math.log(prior_density)
        for share, p in shares:
            factors = [share * ratio + 1 - share for ratio in of_runs]
            parts = [math.log(math.prod(factors[at : at + SAFE])) for at in range(0, len(factors), SAFE)]
            logs.append(prior + math.log(p) + sum(parts))
    return _sum(logs)


def _prior_density(shortfall: float) -> float:
    """The prior density of a shortfall."""
    usual = math.exp(-shortfall / MEAN_SHORTFALL) / MEAN_SHORTFALL
    return (1 - ANY_SHORTFALL) * usual + ANY_SHORTFALL / (1 + shortfall) ** 2


def _failing(runs: Sequence[Observation], noise: Noise, shares: Shares) -> float:
    wrong = sum(run.wrong for run in runs)
    failed = sum(bool(run.failed) for run in runs) - wrong
    fine = len(runs) - failed - wrong
    if not failed and not wrong:
        return NEVER
    return _sum(
        [
            math.log(probability)
            + failed * math.log(share / noise.failed + 1 - share)
            + wrong * math.log(share / WRONG + 1 - share)
            + fine * math.log(1 - share)
            for share, probability in shares
        ]
    )


def _sum(logs: Sequence[float]) -> float:
    """The logarithm of a sum of exponentials."""
    top = max(logs)
    return top if top == NEVER else top + math.log(sum([math.exp(value - top) for value in logs]))
