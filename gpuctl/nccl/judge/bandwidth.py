"""baseline: out-of-place busbw at every message size against the row that applies to it.

Without a row nothing is judged, and the finding is a WARN: no baseline defines what this fabric should reach, whether
its machine type, its number of nodes or its collective has none. It is UNKNOWN if rows exist but what the run was is
not known, or its message sizes do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.nccl import bandwidth as rates
from gpuctl.nccl.baselines.model import Baseline, Book
from gpuctl.nccl.context import DEFAULT, RunContext
from gpuctl.nccl.messages import Numbers, by_size, flag, plural, size, sizes
from gpuctl.nccl.model import Row, Run

RULE = "baseline"
MOST_NEAR = 4  # similar rows that are listed if none fits
SLOW = "`gpuctl nccl isolate` finds whether one node is slow or all are; the versions and NCCL's tuner decide, too"
SLOW_ALONE = "look on this node at NVLink, the fabric manager and throttled clocks, and whether NVLS is used"
INFERRED = "its limit follows from other runs, and `gpuctl nccl calibrate` makes one of your own"
CALIBRATE = "`gpuctl nccl calibrate` records what this fabric reaches, once you trust it"


def bandwidth(run: Run, about: RunContext, book: Book) -> Iterator[Finding]:
    rows = [row for row in by_size(run) if row.out_of_place is not None]
    if not rows:
        if run.rows:
            message = "not judged: the log has no out-of-place bandwidth, and baselines apply to that only"
            yield Finding(
                RULE, "", Verdict.UNKNOWN, message, {"rows": len(run.rows)}, "run it again with out-of-place results"
            )
        return
    judged = [(row, base) for row in rows if (base := book.row_for(about, row.size_bytes)) is not None]
    if not judged:
        yield _not_judged(about, book, rows)
        return
    bad = [(row, base) for row, base in judged if _verdict(row, base) is not Verdict.OK]
    for row, base in bad:
        yield _slow(row, base, about, book)
    good = [pair for pair in judged if pair not in bad]
    if good:
        yield _good(good, {"sizes_judged": len(judged), "sizes_without_baseline": len(rows) - len(judged)}, about, book)


def _speed(row: Row) -> float:
    return row.out_of_place.busbw_gbs if row.out_of_place else 0.0


def _verdict(row: Row, base: Baseline) -> Verdict:
    if base.fail is not None and _speed(row) < base.fail:
        return Verdict.FAIL
    return Verdict.WARN if base.warn is not None and _speed(row) < base.warn else Verdict.OK


def _slow(row: Row, base: Baseline, about: RunContext, book: Book) -> Finding:
    verdict = _verdict(row, base)
    advice = SLOW_ALONE if about.nodes == 1 else SLOW
    name, least = ("fail", base.fail) if verdict is Verdict.FAIL else ("warn", base.warn)
    if base.fail is None:
        advice = f"no run is published for it: {INFERRED}; {advice}"
    message = f"{_speed(row):g} GB/s at {size(row.size_bytes)} is below the {name} limit {least:g} ({base.origin})"
    return Finding(RULE, size(row.size_bytes), verdict, message, _numbers(row, base, about, book), advice)


def _good(pairs: Sequence[tuple[Row, Baseline]], counts: Numbers, about: RunContext, book: Book) -> Finding:
    """One OK finding: the size nearest to its limit; a size that passed only by a forced row comes first."""
    row, base = min(pairs, key=lambda pair: (pair[1].below_published is None, _speed(pair[0]) / pair[1].least))
    where = sizes(row.size_bytes for row, _ in pairs)
    least, name = (base.warn, "warn") if base.warn is not None else (base.fail, "fail")
    nearest = f"{where} hold, the nearest with " if len(pairs) > 1 else ""
    message = f"{nearest}{_speed(row):g} GB/s at {size(row.size_bytes)}, {name} below {least:g} ({base.origin})"
    marked = base.below_published is not None
    advice = "find out why this fabric is slower than others of its kind, then calibrate again" if marked else ""
    verdict = Verdict.WARN if marked else Verdict.OK
    return Finding(RULE, where, verdict, message, {**_numbers(row, base, about, book), **counts}, advice)


def _numbers(row: Row, base: Baseline, about: RunContext, book: Book) -> Numbers:
    numbers: Numbers = {
        "busbw_gbs": _speed(row),
        "expect_gbs": base.expect,
        "warn_gbs": base.warn,
        "fail_gbs": base.fail,
        "size_bytes": row.size_bytes,
        "source": base.source,
        "kind": base.kind,
        "algorithm": about.algorithm or "unknown; assumed to be NCCL's choice",
    }
    marked: Numbers = {} if base.below_published is None else {"below_published_gbs": base.below_published}
    return {**numbers, **marked, **_of_line(row, about, book)}


def _of_line(row: Row, about: RunContext, book: Book) -> Numbers:
    """Share of the line rate, if several nodes took part."""
    system = book.systems.get(about.system or "")
    if system is None or about.nodes is None or about.nodes < 2:
        return {}
    line = system.line_rate_gbs
    if about.algorithm == "Ring":
        return {"line_rate_gbs": line, "share_of_line_rate": round(rates.ring_share(_speed(row), line), 3)}
    if about.ranks is None or about.ranks < 2:
        return {"line_rate_gbs": line}
    rate = rates.accelerator_rate(_speed(row), about.nodes, about.ranks)
    return {"line_rate_gbs": line, "accelerator_gbs_if_hierarchical": round(rate, 2)}


def _not_judged(about: RunContext, book: Book, rows: Sequence[Row]) -> Finding:
    best = max(rows, key=_speed)
    numbers: Numbers = {
        "peak_gbs": _speed(best),
        "peak_bytes": best.size_bytes,
        "system": about.system,
        "nodes": about.nodes,
        "gpus_per_node": about.gpus_per_node,
        "algorithm": about.algorithm,
    }
    verdict, why, advice = _why_not(about, book)
    fitting = book.fitting(about)
    if fitting:
        verdict, why, advice = _other_sizes(fitting, rows)
        low, high = _span(fitting)
        numbers = {**numbers, "baseline_from_bytes": low, "baseline_to_bytes": high}
    message = f"not judged, no baseline{why}"  # the same for all that are alike: what each reached is in its numbers
    return Finding(RULE, "", verdict, message, numbers, advice)


def _why_not(about: RunContext, book: Book) -> tuple[Verdict, str, str]:
    """Verdict, reason and advice if no row applies to any of the sizes."""
    if about.system is None:
        return Verdict.WARN, ": the log does not name the machine type", f"set it with --instance; {CALIBRATE}"
    if about.collective is None and any(about.system in row.systems for row in book.rows):
        why = ": the log does not name the collective"
        return Verdict.UNKNOWN, why, "set it with --collective, or pass a log that contains the command"
    near = [row for row in book.rows if about.system in row.systems and row.collective == about.collective]
    if near and (about.nodes is None or about.gpus_per_node is None):
        why = f": {about.system} has baselines, but the number of nodes and GPUs of this run is unknown"
        return Verdict.UNKNOWN, why, "pass --nodes and --gpus-per-node, or a log with the complete list of devices"
    why = f": {_no_row(about, book, near)}"
    if others := _other_collectives(about, book):
        advice = f"`gpuctl nccl calibrate --collective {about.collective}` records what this fabric reaches"
        return Verdict.WARN, f"{why}; baselines for such runs exist for {', '.join(others)} only", advice
    return Verdict.WARN, why, CALIBRATE


def _other_collectives(about: RunContext, book: Book) -> list[str]:
    """Collectives that have rows for a run like this one."""
    return sorted({row.collective for row in book.rows if row.fits(replace(about, collective=row.collective))})


def _other_sizes(fitting: Sequence[Baseline], rows: Sequence[Row]) -> tuple[Verdict, str, str]:
    """Rows exist for other sizes only: name them, and the options that measure them."""
    least, most = rows[0].size_bytes, rows[-1].size_bytes
    low, high = _span(fitting)
    whose = "your own" if fitting[0].site else f"the {fitting[0].kind}"
    are = "row is" if len(fitting) == 1 else "rows are"
    why = f" at the sizes that were run ({sizes((least, most))}); {whose} {are} for {sizes((low, high))}"
    options = f"-b {flag(low)} -e {flag(high)}"
    if most < low:
        options = f"-e {flag(high)}"
    elif least > high:
        options = f"-b {flag(low)}"
    return Verdict.UNKNOWN, why, f"run it again with {options}"


def _span(fitting: Sequence[Baseline]) -> tuple[int, int]:
    """Least and greatest message size of the rows, in bytes."""
    return min(row.from_bytes for row in fitting), max(row.to_bytes for row in fitting)


def _no_row(about: RunContext, book: Book, near: Sequence[Baseline]) -> str:
    """Describe the run that no row applies to, suggest similar names, and list the nearest rows."""
    close = get_close_matches(about.system or "", book.known, 1)
    if about.system not in book.known and close:
        return f"{about.system} is not known (did you mean {close[0]}?)"
    nodes = plural(about.nodes, "node") if about.nodes else "an unknown number of nodes"
    gpus = f"{plural(about.gpus_per_node, 'GPU')} each" if about.gpus_per_node else "an unknown number of GPUs"
    forced = about.algorithm not in (None, DEFAULT)
    algorithm = f"NCCL_ALGO={about.algorithm}" if forced else "NCCL's choice of algorithm"
    what = f"none exists for {about.collective or 'this'} on {nodes} of {about.system}, {gpus}, {algorithm}"
    known = dict.fromkeys(_situation(row) for row in sorted(near, key=lambda row: _distance(row, about.nodes or 0)))
    return f"{what} (known: {'; '.join(list(known)[:MOST_NEAR])})" if known else what


def _distance(row: Baseline, nodes: int) -> tuple[int, int]:
    """Number of nodes between this number and those of the row; then the row's own."""
    low, high = row.nodes
    return max(low - nodes, nodes - (high or nodes), 0), low


def _situation(row: Baseline) -> str:
    """Conditions of a row, except machine type, collective and sizes."""
    low, high = row.nodes
    nodes = f"{low}+ nodes" if high is None else plural(low, "node") if low == high else f"{low} to {high} nodes"
    return f"{nodes} of {plural(row.gpus_per_node, 'GPU')}, {' or '.join(row.algorithms)}"
