"""Which pair of nodes was how fast, and how each node stands among its pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.model import LaunchResult


@dataclass(frozen=True)
class Cell:
    """What the runs of one pair gave: `speeds` in GB/s, and how many of them ended without one."""

    speeds: tuple[float, ...]
    failed: int

    @property
    def speed(self) -> float | None:
        """The median in GB/s; None where no run of this pair gave a number."""
        return median(self.speeds) if self.speeds else None


@dataclass(frozen=True)
class NodeSummary:
    """A node among its pairs: median and lowest speed (GB/s, None where there is none), and its failed runs."""

    node: str
    runs: int
    failed: int
    median_gbs: float | None
    lowest_gbs: float | None
    slowest_with: str


@dataclass(frozen=True)
class Matrix:
    """All pairs that were run over all adapters; a pair that is not among the cells was not measured."""

    nodes: tuple[str, ...]
    cells: Mapping[frozenset[str], Cell]

    def cell(self, one: str, other: str) -> Cell | None:
        return self.cells.get(frozenset((one, other)))

    @property
    def usual(self) -> float | None:
        """The median pair in GB/s, which the others are compared with."""
        known = [cell.speed for cell in self.cells.values() if cell.speed is not None]
        return median(known) if known else None


def of(results: Iterable[LaunchResult]) -> Matrix:
    """The pairs among some runs; those kept to one adapter say nothing of the whole node, and are left out."""
    runs: dict[frozenset[str], list[float | None]] = {}
    for end in results:
        if len(end.launch.nodes) == 2 and not end.launch.rail:
            runs.setdefault(frozenset(end.launch.nodes), []).append(speed(end.run))
    cells = {pair: Cell(tuple(s for s in speeds if s is not None), speeds.count(None)) for pair, speeds in runs.items()}
    return Matrix(tuple(sorted({node for pair in cells for node in pair}, key=_as_numbered)), cells)


def node_summaries(matrix: Matrix) -> list[NodeSummary]:
    """Every node, the one that failed most first, then the slowest."""
    summaries = [_standing(matrix, node) for node in matrix.nodes]
    return sorted(summaries, key=lambda s: (-s.failed, s.median_gbs if s.median_gbs is not None else 0.0, s.node))


def _standing(matrix: Matrix, node: str) -> NodeSummary:
    cells = {next(iter(pair - {node})): cell for pair, cell in matrix.cells.items() if node in pair}
    speeds = {other: cell.speed for other, cell in cells.items() if cell.speed is not None}
    slowest = min(speeds, key=speeds.__getitem__, default="")
    return NodeSummary(
        node,
        sum(len(cell.speeds) + cell.failed for cell in cells.values()),
        sum(cell.failed for cell in cells.values()),
        median(speeds.values()) if speeds else None,
        speeds.get(slowest),
        slowest,
    )


def _as_numbered(name: str) -> list[tuple[int, int | str]]:
    """Sorts node-2 before node-10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
