"""The scatter of measured speeds: tails far heavier than a normal distribution's, and sometimes a gust."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Scatter:
    """`spread`: relative spread of a usual run. `gusts`: the chance that a run loses 5 to 40 % to other traffic."""

    kind: str  # "student", "laplace", "mixed"
    spread: float
    gusts: float

    def factor(self, random: Random) -> float:
        """A factor for one speed."""
        factor = math.exp(-self.spread * SHAPES[self.kind](random))
        return factor * (1 - random.uniform(0.05, 0.4)) if random.random() < self.gusts else factor


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
    """A random scatter, from calm to rough."""
    return Scatter(
        random.choice(sorted(SHAPES)), random.choice((0.003, 0.006, 0.01)), random.choice((0.0, 0.001, 0.002))
    )
