"""JSON form of runs and launch results, both ways. The documented form of a run is stable:

    outcome                complete | corrupt | failed | killed | hung | truncated | empty
    cause                  text or null: the first real reason, with rank and node where known
    collective             "all_reduce" or null
    rows                   list of size_bytes, count, type, redop, root, out_of_place, in_place;
                           a half is time_us, algbw_gbs, busbw_gbs, wrong (null: not checked), per_iteration, or
                           null: not printed; per_iteration is null, or with nccl-tests -I min_us, median_us (null: in
                           its JSON alone), p99_us, max_us, cv_percent
    avg_busbw_gbs          as nccl-tests printed it; null where it did not
    max_busbw_gbs          the highest of both halves of all rows; null without rows
    max_busbw_size_bytes   the size at which it was measured
    out_of_bounds          count of the summary, or null
    ranks                  list of rank, host, pid, device, gpu
    transport              ranks: list of rank, host, network, provider, nics, gdr (null: not said);
                           algorithms: those NCCL said it used; forced_algorithms: those NCCL_ALGO asked for
    versions               nccl, nccl_tests, cuda, plugin
    sizes_announced        how many message sizes the heading promised, or null
    left_out               true where "..." stands in the text, in the place of lines before the summary
    not_numbers            list of size_bytes, half, column, printed: "nan" and the like where a number belongs; the
                           half without a time or bandwidth, and a count of wrong values, is null then
    warning                NCCL's first warning, or null; null, too, where a failure was printed
    origin                 pod, log stream or host that printed the table, or null

Sizes are bytes, times microseconds, bandwidths GB/s (10**9 bytes a second).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypedDict

from gpuctl.engine import typed_json
from gpuctl.nccl.model import (
    Launch,
    LaunchResult,
    NoNumber,
    Outcome,
    Rank,
    Row,
    Run,
    Sweep,
    Transport,
    Versions,
)


def run_as_dict(run: Run) -> dict[str, Any]:
    """Convert a run to the documented form."""
    best = _best(run)
    return {
        "outcome": str(run.outcome),
        "cause": run.cause,
        "collective": run.collective,
        "rows": [asdict(row) for row in run.rows],
        "avg_busbw_gbs": run.avg_busbw_gbs,
        "max_busbw_gbs": best[0] if best else None,
        "max_busbw_size_bytes": best[1] if best else None,
        "out_of_bounds": run.out_of_bounds,
        "ranks": [{**asdict(rank), "host": rank.host or None} for rank in run.ranks],
        "transport": {
            "algorithms": list(run.algorithms),
            "forced_algorithms": list(run.forced_algorithms),
            "ranks": [{**asdict(one), "nics": list(one.nics)} for one in run.transports],
        },
        "versions": asdict(run.versions),
        "sizes_announced": run.sizes_announced,
        "left_out": run.left_out,
        "not_numbers": [asdict(one) for one in run.not_numbers],
        "warning": run.warning,
        "origin": run.origin,
    }


def _best(run: Run) -> tuple[float, int] | None:
    """The highest bus bandwidth and its size; the smaller size where two are equal."""
    candidates = [
        (half.busbw_gbs, row.size_bytes) for row in run.rows for half in (row.out_of_place, row.in_place) if half
    ]
    return max(candidates, key=lambda pair: (pair[0], -pair[1]), default=None)


class _Transports(TypedDict):
    algorithms: tuple[str, ...]
    ranks: tuple[Transport, ...]


class _TransportForm(_Transports, total=False):
    forced_algorithms: tuple[str, ...]


class _RunOfOld(TypedDict):
    outcome: str
    cause: str | None
    collective: str | None
    rows: tuple[Row, ...]
    avg_busbw_gbs: float | None
    out_of_bounds: int | None
    ranks: list[dict[str, object]]
    transport: _TransportForm
    versions: Versions


class _RunForm(_RunOfOld, total=False):
    """Runs that were kept before there were such things have none."""

    sizes_announced: int | None
    not_numbers: tuple[NoNumber, ...]
    left_out: bool
    warning: str | None
    origin: str | None


class _LaunchOfOld(TypedDict):
    nodes: tuple[str, ...]
    sweep: Sweep
    rail: str
    run: object
    seconds: float
    lost: tuple[str, ...]
    waiting: dict[str, str]


class _LaunchForm(_LaunchOfOld, total=False):
    left: str


def run_from_dict(value: object, place: str = "run") -> Run:
    """Read a run back; ValueError, with the place of the mistake, if `value` does not have the documented form."""
    form = typed_json.read(value, _RunForm, place, extra=True)
    ranks = [{**rank, "host": rank.get("host") or ""} for rank in form["ranks"]]
    return Run(
        Outcome(form["outcome"]),
        form["cause"],
        form["collective"],
        form["rows"],
        form["avg_busbw_gbs"],
        form["out_of_bounds"],
        tuple(typed_json.read(rank, Rank, f"{place}.ranks[{number}]") for number, rank in enumerate(ranks)),
        form["transport"]["ranks"],
        form["transport"]["algorithms"],
        form["versions"],
        form["transport"].get("forced_algorithms", ()),
        form.get("sizes_announced"),
        form.get("not_numbers", ()),
        form.get("left_out", False),
        form.get("warning"),
        form.get("origin"),
    )


def launch_as_dict(result: LaunchResult) -> dict[str, Any]:
    """Convert a launch result: nodes, sweep, rail, seconds, lost, waiting, left, and the run in its documented form."""
    return {
        "nodes": list(result.launch.nodes),
        "rail": result.launch.rail,
        "sweep": asdict(result.launch.sweep),
        "seconds": result.seconds,
        "lost": list(result.lost),
        "waiting": dict(result.waiting),
        "left": result.left,
        "run": run_as_dict(result.run),
    }


def launch_from_dict(value: object, place: str = "launch") -> LaunchResult:
    """Read a launch result back; ValueError, with the place of the mistake, if `value` does not have this form."""
    form = typed_json.read(value, _LaunchForm, place)
    launch = Launch(form["nodes"], form["sweep"], form["rail"])
    run = run_from_dict(form["run"], f"{place}.run")
    return LaunchResult(launch, run, form["seconds"], form["lost"], form["waiting"], form.get("left", ""))
