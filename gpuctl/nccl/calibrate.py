"""Turn repeated sound runs into the site's own baselines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import median

from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl import context as known
from gpuctl.nccl.bandwidth import FAIL, WARN
from gpuctl.nccl.baselines.model import Baseline, Book
from gpuctl.nccl.context import DEFAULT, RunContext
from gpuctl.nccl.judge import run as judge
from gpuctl.nccl.messages import by_size, names, size, sizes
from gpuctl.nccl.model import LaunchResult, Outcome, Row, Run
from gpuctl.nccl.parsing.algorithms import ALGORITHMS
from gpuctl.nccl.parsing.outcome import kind

LEAST_RUNS = 3
# superbenchmark takes runs that differ by more than 5 % for unlike; so do we.
SPREAD = 0.05
GROWN = 0.5  # of the best bandwidth: smaller sizes measure latency, and no row is made of them
FORCE = "find out why (`gpuctl nccl isolate`); --force keeps it, marked as below the limit"


@dataclass(frozen=True)
class Calibration:
    """Rows to keep, or the reasons for refusing them.

    `below`: rows below a published fail limit, size -> (measured, limit); `below_site`: the same against the site's
    row in force.
    """

    rows: tuple[Baseline, ...]
    refused: tuple[str, ...]
    below: Mapping[int, tuple[float, float]]
    speeds: Mapping[int, Sequence[float]] = field(default_factory=dict)  # by size: what each run reached, GB/s
    below_site: Mapping[int, tuple[float, float]] = field(default_factory=dict)


def calibrate(runs: Sequence[Run], stated: RunContext, book: Book, day: str = "") -> Calibration:
    """Make one row a message size out of runs of one kind; `day` (2026-11-21) defaults to today.

    Refused: fewer than three runs, unlike runs, runs that did not end well, wrong or unchecked values, a network
    that is unknown or not the expected one, a drop, a bandwidth that was not printed, and repeats more than 5 %
    apart.
    """
    every = [known.infer(run, stated) for run in runs]
    refused = [*_too_little(runs, every), *_unlike(runs, every), *_unsound(runs, stated, book), *_scattered(runs)]
    if not refused and not _grown(runs):
        refused = ["no size has a bandwidth above 0"]
    if refused:
        return Calibration((), tuple(refused), {})
    rows = list(_rows(runs, every[0], day or time.strftime("%Y-%m-%d", time.gmtime())))
    below, below_site = (_below(rows, every[0], book, site) for site in (False, True))
    marked = tuple(_marked(row, below, below_site) for row in rows)
    return Calibration(marked, (), below, _grown(runs), below_site)


def measure(
    times: int,
    once: Callable[[int], LaunchResult],
    refusals: Callable[[LaunchResult], list[str]],
    broken_off: Callable[[], bool],
    results: list[LaunchResult] | None = None,
) -> list[LaunchResult]:
    """Run `once` (given its number, from 1) `times` times; stop early on Ctrl-C or once a run is refused.

    `refusals` lists why no baseline can be made of a run. `results` is filled as runs end, so that they survive an
    exception.
    """
    results = [] if results is None else results
    for number in range(1, times + 1):
        if broken_off():
            break
        results.append(once(number))
        if refusals(results[-1]):
            break
    return results


def _below(rows: Sequence[Baseline], about: RunContext, book: Book, site: bool) -> dict[int, tuple[float, float]]:
    """Rows that the existing rows (the site's own or the others) would fail: size -> (measured, limit)."""
    limits = replace(book, rows=[row for row in book.rows if row.site == site])
    limited = {row.from_bytes: (row.expect or 0.0, limits.row_for(about, row.from_bytes)) for row in rows}
    fails = {at: (now, base.fail) for at, (now, base) in limited.items() if base is not None and base.fail is not None}
    return {at: (now, fail) for at, (now, fail) in fails.items() if now < fail}


def _marked(
    row: Baseline, below: Mapping[int, tuple[float, float]], below_site: Mapping[int, tuple[float, float]]
) -> Baseline:
    """Mark a row with the limit that it was forced below."""
    if row.from_bytes in below:
        row = replace(row, below_published=below[row.from_bytes][1])
    if row.from_bytes in below_site:
        limit = below_site[row.from_bytes][1]
        row = replace(row, why=f"{row.why} Forced below the limit {limit:g} of your own row before it.")
    return row


def _too_little(runs: Sequence[Run], every: Sequence[RunContext]) -> Iterator[str]:
    if len(runs) < LEAST_RUNS:
        yield f"{len(runs)} of at least {LEAST_RUNS} runs: an outlier cannot be identified"
    if any(one.rows and one.rows == other.rows for one, other in combinations(runs, 2)):
        yield "two of the runs are identical: give repeats that were measured separately"
    missing = {
        "the machine type (--instance)": any(about.system is None for about in every),
        "the number of nodes (--nodes)": any(about.nodes is None for about in every),
        "the number of GPUs per node (--gpus-per-node)": any(about.gpus_per_node is None for about in every),
        "the collective (--collective)": any(about.collective is None for about in every),
    }
    for fact in [fact for fact, is_missing in missing.items() if is_missing]:
        yield f"{fact} is not known"
    for name in sorted({about.algorithm for about in every if about.algorithm} - {DEFAULT, *ALGORITHMS}):
        yield f"NCCL_ALGO was {name}: a row is for one algorithm, or for NCCL's own choice among all"


def _unlike(runs: Sequence[Run], every: Sequence[RunContext]) -> Iterator[str]:
    """Runs that are not repeats of each other."""
    parts: dict[str, Sequence[object]] = {
        "collectives": [about.collective for about in every],
        "message sizes": [tuple(row.size_bytes for row in by_size(run)) for run in runs],
        "numbers of nodes": [about.nodes for about in every],
        "numbers of GPUs in a node": [about.gpus_per_node for about in every],
        "numbers of processes on a node": [about.processes_per_node for about in every],
        "algorithms": [about.algorithm for about in every],
        "versions": [run.versions for run in runs],
    }
    for what, values in parts.items():
        if len(set(values)) > 1:
            yield f"the runs have different {what}: they are not repeats of one run"


def _unsound(runs: Sequence[Run], stated: RunContext, book: Book) -> Iterator[str]:
    for number, run in enumerate(runs, 1):
        yield from (f"run {number}: {why}" for why in unsound(run, stated, book))


def unsound(run: Run, stated: RunContext, book: Book) -> Iterator[str]:
    """Reasons why a run cannot become a row; its bandwidth is not one of them, since that is being measured."""
    if run.outcome is Outcome.COMPLETE:
        unprinted = [row.size_bytes for row in by_size(run) if row.out_of_place is None]
        if unprinted:
            yield f"it printed no bandwidth at {sizes(unprinted)}"
        elif not by_size(run):
            yield "it printed no bandwidth"
        if len({kind(row) for row in run.rows}) > 1:
            yield "it measured several types, operations or roots: give runs of one"
    for finding in judge.judge(run, stated, book):
        if finding.check not in ("baseline", "two-nodes") and not _harmless(finding):
            yield finding.message


def _harmless(finding: Finding) -> bool:
    """A fabric without GDR is slow but sound; a drop, even in half of the rows, is not."""
    return finding.verdict is Verdict.OK or (finding.check == "transport" and finding.verdict is Verdict.WARN)


def _scattered(runs: Sequence[Run]) -> Iterator[str]:
    """Repeats that are too far apart, and which of them is off."""
    for size_bytes, speeds in _grown(runs).items():
        middle = median(speeds)
        off = [number for number, speed in enumerate(speeds, 1) if abs(speed - middle) > SPREAD * middle]
        if off or max(speeds) - min(speeds) > SPREAD * middle:
            who = f"run {names(map(str, off))} is off" if off else "no two agree"
            shown = ", ".join(f"{speed:g}" for speed in speeds)
            yield f"at {size(size_bytes)} the runs are more than {SPREAD:.0%} apart ({shown} GB/s): {who}"


def _grown(runs: Sequence[Run]) -> dict[int, list[float]]:
    """Out-of-place busbw of every run by message size, from the size at which all reach half of the best bandwidth."""
    speeds: dict[int, list[float]] = {}
    for run in runs:
        for row in by_size(run):
            if (speed := _speed(row)) is not None:
                speeds.setdefault(row.size_bytes, []).append(speed)
    peak = max((median(values) for values in speeds.values()), default=0.0)
    whole = {size_bytes: values for size_bytes, values in speeds.items() if len(values) == len(runs)}
    return {size_bytes: values for size_bytes, values in whole.items() if peak and median(values) >= GROWN * peak}


def _speed(row: Row) -> float | None:
    return row.out_of_place.busbw_gbs if row.out_of_place else None


def _rows(runs: Sequence[Run], about: RunContext, day: str) -> Iterator[Baseline]:
    hosts = names({rank.host for run in runs for rank in run.ranks}, most=1024)
    versions = {name: text for name, text in vars(runs[0].versions).items() if text}
    measured = {"date": day, "runs": str(len(runs)), "nodes": hosts or "unknown", **versions}
    if about.gpu:
        measured["gpu"] = about.gpu
    for size_bytes, speeds in _grown(runs).items():
        expect = round(median(speeds), 2)
        yield Baseline(
            systems=(about.system or "",),
            gpus_per_node=about.gpus_per_node or 0,
            processes_per_node=about.processes_per_node,
            nodes=(about.nodes or 0, about.nodes),
            collective=about.collective or "",
            algorithms=(about.algorithm or DEFAULT,),
            from_bytes=size_bytes,
            to_bytes=size_bytes,
            expect=expect,
            warn=round(WARN * expect, 2),
            fail=round(FAIL * expect, 2),
            kind="measured",
            source="gpuctl nccl calibrate",
            why=f"The middle of {len(runs)} runs; they lie between {min(speeds):g} and {max(speeds):g} GB/s.",
            measured=measured,
        )


def accept(calibration: Calibration, force: bool) -> tuple[Baseline, ...]:
    """Return the rows to keep; raises `InvalidInput` if they are refused, or below a limit and not forced."""
    doing = "calibrate from these runs"
    if calibration.refused:
        raise InvalidInput(
            doing, "\n  ".join(calibration.refused), "calibrate on a fabric that `gpuctl nccl judge` finds no fault in"
        )
    slow = too_slow(calibration)
    if slow and not force:
        raise InvalidInput(doing, "\n  ".join(slow), FORCE)
    return calibration.rows


def too_slow(calibration: Calibration) -> list[str]:
    """Limits (published or the site's own) that only --force overrides."""
    return [
        f"{now:g} GB/s at {size(at)} is below {whose} limit {limit:g}"
        for whose, below in (("the published", calibration.below), ("your own", calibration.below_site))
        for at, (now, limit) in below.items()
    ]
