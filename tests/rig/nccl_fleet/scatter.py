"""How measured speeds scatter around what a network gives: tails far heavier than a bell's, and now and then a gust."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Scatter:
    """`spread`: of a usual run, relative. `gusts`: the chance that a run loses 5 to 40 % to traffic of others."""

    kind: str  # "student", "laplace", "mixed"
    spread: float
    gusts: float

    def factor(self, random: Random) -> float:
        """What a speed is multiplied by."""
        found = math.exp(-self.spread * SHAPES[self.kind](random))
        return found * (1 - random.uniform(0.05, 0.4)) if random.random() < self.gusts else found


def _student(random: Random) -> float:
    """Three degrees of freedom: its tails fall with the third power only."""
    return random.gauss(0, 1) / math.sqrt(random.gammavariate(1.5, 2) / 3)


def _laplace(random: Random) -> float:
    return random.expovariate(1) * random.choice((-1, 1))


def _mixed(random: Random) -> float:
    """One run in twenty scatters five times as wide."""
    return random.gauss(0, 5 if random.random() < 0.05 else 1)


SHAPES: dict[str, Callable[[Random], float]] = {"student": _student, "laplace": _laplace, "mixed": _mixed}


def scatter(random: Random) -> Scatter:
    """One of them, from calm to rough."""
    return Scatter(
        random.choice(sorted(SHAPES)), random.choice((0.003, 0.006, 0.01)), random.choice((0.0, 0.001, 0.002))
    )
