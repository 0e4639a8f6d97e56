"""The report of nccl-tests -J; JSON of other tools is only recognised."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from gpuctl.nccl.model import Iterations, NoNumber, Outcome, Rank, Row, Run, Timing, Versions
from gpuctl.nccl.parsing import header
from gpuctl.nccl.parsing import outcome as ending
from gpuctl.nccl.parsing.first_failure import Troubles
from gpuctl.nccl.parsing.lines import Speaker, clean
from gpuctl.nccl.parsing.rows import wrong

ROUNDED = 4096  # bytes that a size may lack, so that every rank has as much
_MOST = 10**18  # no machine counts so far: as long as in text
_MOST_OF_PROCESS = 64  # GPUs of one process
_LONGEST = 40  # characters that are kept of what is no number
_DECODER = json.JSONDecoder()
# nccl-tests writes numbers with %lf: what has no end is then no JSON.
_BARE = re.compile(r"(?<=[:,\[\s])(-?(?:inf|nan))(?=[,}\]\s])")
_HALVES = ("out_of_place", "in_place")
_ITERATIONS = ("min_us", "p50_us", "p99_us", "max_us", "cv_pct")
_CELLS = {"time": "time_us", "cpu_time": "time_us", "alg_bw": "algbw_gbs", "bus_bw": "busbw_gbs", "nwrong": "wrong"}
_PARTS = ("args", "nccl_version", "config", "out_of_bounds", "average_bus_bandwidth")


def read(text: str, stopped: ending.Stopped | None = None) -> Run | None:
    """Run of a report, even if the report was cut; None if it is not JSON of a known tool."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        text, bare = _BARE.subn(r'"\1"', text)
        if bare:
            return read(text, stopped)
        return _run(_salvaged(text), stopped, whole=False) if '"results":' in text or '"config":' in text else None
    if not isinstance(value, dict):
        return None
    if "results" in value or "config" in value:
        return _run(value, stopped, whole=True)
    foreign = _foreign(value)
    return Run(Outcome.EMPTY, foreign, None, (), None, None) if foreign else None


def _foreign(value: Mapping[str, Any]) -> str | None:
    """Name of the other NCCL tool that wrote this."""
    if "communicators" in value and "communicators_count" in value:
        return f"this is RAS status of NCCL, not output of nccl-tests{_ras(value)}"
    if "coll_perf" in value or "inspector_output_format_version" in str(value.get("metadata", "")):
        return "this is output of NCCL's inspector, not of nccl-tests"
    return None


def _ras(value: Mapping[str, Any]) -> str:
    """Problems that RAS reports, for users who passed it as a log."""
    ranks = []
    for group in _list(value.get("communicators")):
        if isinstance(group, dict) and group.get("missing_ranks_count"):
            ranks.append(
                f"communicator {group.get('hash')} lacks {group['missing_ranks_count']} of {group.get('size')} ranks"
            )
        for one in _list(group.get("ranks") if isinstance(group, dict) else None):
            status = one.get("status") if isinstance(one, dict) else None
            if isinstance(status, dict) and status.get("async_error"):
                ranks.append(
                    f"rank {one.get('rank')} on {one.get('host')} has asynchronous error {status['async_error']}"
                )
    return clean(f" (it says: {'; '.join(ranks[:4])})") if ranks else ""


def _salvaged(text: str) -> dict[str, Any]:
    """Complete parts of a cut report."""
    value: dict[str, Any] = {}
    for name in _PARTS:
        match = re.search(rf'"{name}": ?(?=["\[{{\d])', text)
        if match:
            part = _part(text, match.end())
            # A number at the very end may go on behind the cut.
            if part and not (isinstance(part[0], int | float) and part[1] >= len(text)):
                value[name] = part[0]
    begin = re.search(r'"results": ?\[', text)
    rows, at = [], begin.end() if begin else len(text)
    while (part := _part(text, at)) is not None:
        rows.append(part[0])
        at = part[1] + len(text[part[1] :][:2]) - len(text[part[1] :][:2].lstrip(", \n"))
    return {**value, "results": rows}


def _part(text: str, at: int) -> tuple[Any, int] | None:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _run(value: Mapping[str, Any], stopped: ending.Stopped | None, *, whole: bool) -> Run:
    config = _dict(value.get("config"))
    rows = tuple(row for one in _list(value.get("results")) if (row := _row(_dict(one))))
    out = _number(_dict(value.get("out_of_bounds")).get("count"))
    average = _number(_dict(value.get("average_bus_bandwidth")).get("bandwidth"))
    bounds = int(out) if out is not None else None
    summed_up = bounds is not None or average is not None
    odd = tuple(cell for one in _list(value.get("results")) for cell in _no_numbers(_dict(one)))
    announced = _announced(config, rows, whole and summed_up)
    evidence = ending.Evidence(
        rows, bounds, summed_up, announced, begun="results" in value, started=True, whole=whole, not_numbers=odd
    )
    troubles = Troubles()
    for error in _list(value.get("errors")):
        if text := _text(error):
            troubles.message(Speaker(), f"NCCL ERROR {text}")
    first = troubles.first()
    cause = troubles.cause(lambda _: (None, None))
    outcome, why = ending.judged(evidence, first.outcome if first else None, troubles.fatal, cause, stopped)
    ranks = _ranks(config)
    return Run(
        outcome=outcome,
        cause=why,
        collective=_collective(value),
        rows=rows,
        avg_busbw_gbs=average,
        out_of_bounds=bounds,
        ranks=ranks,
        versions=_versions(value),
        sizes_announced=announced,
        not_numbers=odd,
    )


def _collective(value: Mapping[str, Any]) -> str | None:
    args = _list(value.get("args"))
    return header.collective(args[0]) if args and isinstance(args[0], str) and header.PROGRAM.search(args[0]) else None


def _versions(value: Mapping[str, Any]) -> Versions:
    code = value.get("nccl_version")
    return Versions(nccl=header.version(code)) if _whole(code) and code > 0 else Versions()


def _announced(config: Mapping[str, Any], rows: Sequence[Row], is_complete: bool) -> int | None:
    """Number of sizes in the sweep; limited memory makes it smaller than configured, which no report records.

    It is the configured number unless the run ended at a smaller size, complete up to it.
    """
    alike = [row for row in rows if ending.kind(row) == ending.kind(rows[-1])]
    if is_complete and alike and _expected(config, alike[-1].size_bytes + ROUNDED) == len(alike):
        return len(alike)
    return _expected(config, None)


def _expected(config: Mapping[str, Any], most: int | None) -> int | None:
    """Number of sizes up to this one, or to the greatest."""
    least, greatest = config.get("minimum_bytes"), config.get("maximum_bytes")
    factor, step = config.get("step_factor"), config.get("step_bytes")
    by = factor if _whole(factor) else step
    if not (_whole(least) and _whole(greatest) and _whole(by)):
        return None
    return header.sizes(least, greatest if most is None else min(most, greatest), by, _whole(factor))


def _row(one: Mapping[str, Any]) -> Row | None:
    size, count, root = one.get("size"), one.get("count"), one.get("root")
    if not _whole(size):
        return None
    kind = one.get("type") if isinstance(one.get("type"), str) else None
    number = _number(root)
    return Row(
        size,
        count if _whole(count) else None,
        kind,
        _text(one.get("redop")),
        int(number) if number is not None and abs(number) < _MOST else None,
        *(_timing(one.get(half), kind or "", _iterations(one.get(f"{half}_per_iter"))) for half in _HALVES),
    )


def _no_numbers(one: Mapping[str, Any]) -> Iterator[NoNumber]:
    """Cells of a row that exist but are not numbers; null means "not checked" or "not measured"."""
    size = one.get("size")
    if not _whole(size):
        return
    for half in _HALVES:
        for name, value in _dict(one.get(half)).items():
            if name in _CELLS and value is not None and _number(value) is None:
                yield NoNumber(size, half, _CELLS[name], clean(str(value))[:_LONGEST].strip())


def _iterations(value: object) -> Iterations | None:
    cells = {name: _number(cell) for name, cell in _dict(value).items() if name in _ITERATIONS}
    least, median, p99, most, cv = (cells.get(name) for name in _ITERATIONS)
    if least is None or p99 is None or most is None or cv is None:
        return None
    return Iterations(least, median, p99, most, cv)


def _timing(half: object, kind: str, iterations: Iterations | None) -> Timing | None:
    cells = _dict(half)
    time = _number(cells.get("time", cells.get("cpu_time")))
    algbw, busbw = _number(cells.get("alg_bw")), _number(cells.get("bus_bw"))
    if time is None or algbw is None or busbw is None:
        return None
    count = _number(cells.get("nwrong"))
    return Timing(time, algbw, busbw, wrong(str(count), kind) if count is not None else None, iterations)


def _ranks(config: Mapping[str, Any]) -> tuple[Rank, ...]:
    """Ranks of the run. A report lists only the first of each process; the others of it have the GPUs that follow."""
    listed = [rank for one in _list(config.get("devices")) if (rank := _rank(_dict(one)))]
    threads, gpus = config.get("nthreads"), config.get("ngpus")
    of_process = threads * gpus if _whole(threads) and _whole(gpus) else 1
    if not 1 < of_process <= _MOST_OF_PROCESS:
        return tuple(listed)
    ranks = {rank.rank: rank for rank in listed}
    for first in listed:
        if first.rank % of_process:
            continue
        for number in range(1, of_process):
            device = None if first.device is None else first.device + number
            ranks.setdefault(first.rank + number, Rank(first.rank + number, first.host, first.pid, device, None))
    return tuple(ranks[number] for number in sorted(ranks))


def _rank(one: Mapping[str, Any]) -> Rank | None:
    rank, pid, device = one.get("rank"), one.get("pid"), one.get("device")
    if not _whole(rank):
        return None
    return Rank(
        rank,
        _text(one.get("hostname")) or "",
        pid if _whole(pid) else None,
        device if _whole(device) else None,
        _text(one.get("device_info")),
        header.bus_id(_text(one.get("device_hex"))),
    )


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST


def _number(value: object) -> float | None:
    """A number, or a number in a string ("    -1")."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _text(value: object) -> str | None:
    return clean(value).strip() or None if isinstance(value, str) else None


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
