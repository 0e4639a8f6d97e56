"""Bandwidth of each pair of nodes, and a summary of each node over its pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from gpuctl.nccl.bandwidth import speed
from gpuctl.nccl.model import LaunchResult


@dataclass(frozen=True)
class Cell:
    """Results of one pair: `speeds` in GB/s, and the number of runs that failed without one."""

    speeds: tuple[float, ...]
    failed: int

    @property
    def speed(self) -> float | None:
        """Median in GB/s; None if no run of this pair has a result."""
        return median(self.speeds) if self.speeds else None


@dataclass(frozen=True)
class NodeSummary:
    """Summary of a node over its pairs: median and lowest bandwidth in GB/s, None without a result; failed runs."""

    node: str
    runs: int
    failed: int
    median_gbs: float | None
    lowest_gbs: float | None
    slowest_with: str


@dataclass(frozen=True)
class Matrix:
    """All pairs that ran over all adapters; a pair without a cell was not measured."""

    nodes: tuple[str, ...]
    cells: Mapping[frozenset[str], Cell]

    def cell(self, one: str, other: str) -> Cell | None:
        return self.cells.get(frozenset((one, other)))

    @property
    def usual(self) -> float | None:
        """Median of all pairs in GB/s, for comparison."""
        known = [cell.speed for cell in self.cells.values() if cell.speed is not None]
        return median(known) if known else None


def pair_matrix(results: Iterable[LaunchResult]) -> Matrix:
    """Build the matrix from runs of pairs; runs restricted to one adapter are left out."""
    runs: dict[frozenset[str], list[float | None]] = {}
    for end in results:
        if len(end.launch.nodes) == 2 and not end.launch.rail:
            runs.setdefault(frozenset(end.launch.nodes), []).append(speed(end.run))
    cells = {pair: Cell(tuple(s for s in speeds if s is not None), speeds.count(None)) for pair, speeds in runs.items()}
    return Matrix(tuple(sorted({node for pair in cells for node in pair}, key=_as_numbered)), cells)


def node_summaries(matrix: Matrix) -> list[NodeSummary]:
    """Summaries of all nodes, sorted by failed runs, then slowest first."""
    summaries = [_summary(matrix, node) for node in matrix.nodes]
    return sorted(summaries, key=lambda s: (-s.failed, s.median_gbs if s.median_gbs is not None else 0.0, s.node))


def _summary(matrix: Matrix, node: str) -> NodeSummary:
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
    """Sort key: node-2 before node-10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
