"""The measured bandwidth between the nodes of an environment: compare a measurement with the one kept as its baseline.

Pairs are identified by their nodes, not by pods: a pod that moved to another node is measured over other cables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.core.sizes import size
from gpuctl.core.text import named, plural
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl.bandwidth import FAIL, WARN, speed
from gpuctl.nccl.model import LaunchResult

CHECK = "bandwidth"
SCHEMA = "gpuctl.bandwidth/1"
ISOLATE = "`gpuctl nccl isolate --cluster` shows which node or path is bad"
Nodes = tuple[str, ...]


@dataclass(frozen=True)
class Conditions:
    """Mode, GPUs and message sizes of a measurement; only tables measured alike are compared."""

    mode: str
    gpus_per_pod: int
    begin_bytes: int
    end_bytes: int

    @property
    def description(self) -> str:
        sizes = f"{size(self.begin_bytes)} to {size(self.end_bytes)}"
        return f"{self.mode} mode, {plural(self.gpus_per_pod, 'GPU')} per pod, {sizes}"


@dataclass(frozen=True)
class Table:
    """Bus bandwidth (GB/s) of node pairs, or of single nodes; None if a pair has no complete run.

    `measured_at`: UTC, ISO 8601. `nccl`: its version, if it was printed.
    """

    conditions: Conditions
    measured_at: str
    nccl: str = ""
    busbw_gbs: Mapping[Nodes, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """One row: a pair's bandwidth, its baseline (None if it has none), and the verdict."""

    nodes: Nodes
    busbw_gbs: float | None
    baseline_gbs: float | None
    verdict: Verdict

    @property
    def change(self) -> float | None:
        """Relative change against the baseline."""
        if self.busbw_gbs is None or self.baseline_gbs is None:
            return None
        return self.busbw_gbs / self.baseline_gbs - 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "nodes": list(self.nodes),
            "busbw_gbs": self.busbw_gbs,
            "baseline_gbs": self.baseline_gbs,
            "verdict": str(self.verdict),
        }


def counted(results: Sequence[LaunchResult]) -> list[LaunchResult]:
    """Return the runs that count: of a pair's complete runs the fastest, because one slow run may be chance."""
    best: dict[Nodes, float] = {}
    for end in results:
        best[end.launch.nodes] = max(best.get(end.launch.nodes, 0.0), speed(end.run) or 0.0)
    return [end for end in results if speed(end.run) in (None, best[end.launch.nodes])]


def measured(results: Sequence[LaunchResult], conditions: Conditions, at: str) -> Table:
    """Return the table of the runs that count. Of several pairs on the same nodes the slowest counts."""
    speeds: dict[Nodes, list[float | None]] = {}
    for end in results:
        speeds.setdefault(_nodes(end), []).append(speed(end.run))
    table = {nodes: _least(values) for nodes, values in sorted(speeds.items())}
    versions = {end.run.versions.nccl for end in results if end.run.versions.nccl}
    return Table(conditions, at, ", ".join(sorted(versions)), table)


def _least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _nodes(end: LaunchResult) -> Nodes:
    return tuple(sorted(map(node_of, end.launch.nodes)))


def node_of(pod: str) -> str:
    """Return the node in a pod's label, "train-3 on gpu-17"."""
    return pod.rpartition(" on ")[2]


def to_repeat(results: Sequence[LaunchResult], baseline: Table | None) -> list[LaunchResult]:
    """Return the runs to repeat, because they are below the baseline; none if most are, which is not chance."""
    if baseline is None:
        return []
    slow = [end for end in results if _is_slow(end, baseline)]
    return slow if len(slow) <= len(results) / 2 or len(results) == 1 else []


def _is_slow(end: LaunchResult, baseline: Table) -> bool:
    value, expected = speed(end.run), baseline.busbw_gbs.get(_nodes(end))
    return value is not None and expected is not None and value < WARN * expected


def rows(table: Table, baseline: Table | None) -> list[Comparison]:
    """Return a row per pair of the table."""
    known = baseline.busbw_gbs if baseline and baseline.conditions == table.conditions else {}
    return [_row(nodes, value, known.get(nodes)) for nodes, value in table.busbw_gbs.items()]


def _row(nodes: Nodes, value: float | None, expected: float | None) -> Comparison:
    verdict = Verdict.OK
    if value is None:
        verdict = Verdict.UNKNOWN
    elif expected is not None and value < WARN * expected:
        verdict = Verdict.FAIL if value < FAIL * expected else Verdict.WARN
    return Comparison(nodes, value, expected, verdict)


def findings(table: Table, baseline: Table | None) -> list[Finding]:
    """Compare a table with the baseline; what has no baseline is OK, and says so."""
    if baseline and baseline.conditions != table.conditions:
        wrong = f"the baseline was measured differently ({baseline.conditions.description}), and is not comparable"
        return [Finding(CHECK, "", Verdict.UNKNOWN, wrong, {}, "`--new-baseline` replaces it by this measurement")]
    compared = rows(table, baseline)
    result = [_finding(row, table, baseline) for row in compared if row.verdict is not Verdict.OK]
    matching = [row for row in compared if row.verdict is Verdict.OK and row.baseline_gbs is not None]
    new = [row for row in compared if row.verdict is Verdict.OK and row.baseline_gbs is None]
    if matching:
        changes = [row.change for row in matching if row.change is not None]
        message = f"{_count(matching)} as in the baseline ({min(changes):+.1%} to {max(changes):+.1%})"
        result.append(Finding(CHECK, "", Verdict.OK, message, _range(matching)))
    if new:
        result.append(Finding(CHECK, "", Verdict.OK, f"{_count(new)} without a baseline so far", _range(new)))
    return result


def _finding(row: Comparison, table: Table, baseline: Table | None) -> Finding:
    subject = " and ".join(row.nodes)
    numbers = {"busbw_gbs": row.busbw_gbs, "baseline_gbs": row.baseline_gbs}
    if row.busbw_gbs is None or row.baseline_gbs is None or baseline is None:
        return Finding(CHECK, subject, Verdict.UNKNOWN, "the test did not complete", numbers, "run it again")
    versions = f"; NCCL {table.nccl}, then {baseline.nccl}" if table.nccl != baseline.nccl else ""
    message = (
        f"{row.busbw_gbs:.1f} GB/s, {1 - row.busbw_gbs / row.baseline_gbs:.0%} below the {row.baseline_gbs:.1f} GB/s "
        f"of {baseline.measured_at[:10]}{versions}"
    )
    return Finding(CHECK, subject, row.verdict, message, numbers, ISOLATE)


def _count(compared: Sequence[Comparison]) -> str:
    word = "pair" if len(compared[0].nodes) == 2 else "node"
    return f"{plural(len(compared), word)} of {named(sorted({node for row in compared for node in row.nodes}))}"


def _range(compared: Sequence[Comparison]) -> dict[str, float]:
    values = [row.busbw_gbs for row in compared if row.busbw_gbs is not None]
    return {"least_busbw_gbs": min(values), "most_busbw_gbs": max(values)}


def kept(table: Table, baseline: Table | None, *, overwrite: bool) -> Table | None:
    """Return the baseline to keep: this table if there is none or with `overwrite`, else the old one and new pairs.

    None if nothing changes, or if a pair of a first table has no value.
    """
    complete = {nodes: value for nodes, value in table.busbw_gbs.items() if value is not None}
    if baseline is None or overwrite:
        return table if complete and len(complete) == len(table.busbw_gbs) else None
    if baseline.conditions != table.conditions:
        return None
    new = {nodes: value for nodes, value in complete.items() if nodes not in baseline.busbw_gbs}
    return replace(baseline, busbw_gbs={**baseline.busbw_gbs, **new}) if new else None


def as_dict(table: Table) -> dict[str, Any]:
    """The form in which a baseline is kept."""
    pairs = [{"nodes": list(nodes), "busbw_gbs": value} for nodes, value in table.busbw_gbs.items()]
    head = {"schema": SCHEMA, "measured_at": table.measured_at, "nccl": table.nccl}
    return {**head, "conditions": vars(table.conditions), "pairs": pairs}


def from_dict(document: Mapping[str, Any]) -> Table:
    """Read what `as_dict` made; ValueError, TypeError or KeyError if it is anything else."""
    if document["schema"] != SCHEMA:
        raise ValueError(f"its schema is {document['schema']}, not {SCHEMA}")
    speeds = {tuple(map(str, pair["nodes"])): float(pair["busbw_gbs"]) for pair in document["pairs"]}
    if not all(0 < value < float("inf") for value in speeds.values()):
        raise ValueError("a bandwidth is not positive")
    return Table(Conditions(**document["conditions"]), str(document["measured_at"]), str(document["nccl"]), speeds)
