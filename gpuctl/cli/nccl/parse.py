"""nccl parse: show the content of nccl-tests logs to people, programs and spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gpuctl.cli.nccl import log_files
from gpuctl.cli.shared import output

if TYPE_CHECKING:
    from gpuctl.nccl.model import Row, Run, Transport

Form = Literal["table", "json", "csv"]
Named = tuple[str, "list[Run]"]
_HALVES = ("out_of_place", "in_place")
_CELLS = ("time_us", "algbw_gbs", "busbw_gbs", "wrong")
_PER_ITERATION = ("min_us", "median_us", "p99_us", "max_us", "cv_percent")  # of single iterations, measured by -I
_COLUMNS = ("size_bytes", "count", "type", "redop", "root")


@click.command()
@log_files.argument
@click.option("--output", "-o", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
def parse(files: tuple[Path, ...], form: Form) -> None:
    """Read logs of nccl-tests or rccl-tests, or their JSON reports (option -J); - is standard input.

    Shows the outcome of each run, its cause and its results. Exit code 1 if a run is not complete, 2 if a file is
    unusable.
    """
    from gpuctl.nccl.model import Outcome

    named_runs = list(log_files.by_file(files))
    {"table": _tables, "json": _json, "csv": _csv}[form](named_runs)
    complete = all(run.outcome is Outcome.COMPLETE for _, runs in named_runs for run in runs)
    raise click.exceptions.Exit(0 if complete else 1)


def _json(named_runs: list[Named]) -> None:
    """Print one run as an object, several as a list, and several files as a mapping by name."""
    from gpuctl.nccl import serialize

    as_dict = {name: [serialize.run_as_dict(run) for run in runs] for name, runs in named_runs}
    shown: dict[str, object] = {name: runs[0] if len(runs) == 1 else runs for name, runs in as_dict.items()}
    output.data(next(iter(shown.values())) if len(named_runs) == 1 else shown, "json")


def _csv(named_runs: list[Named]) -> None:
    """Print one line a row of each run; a run without rows gets one line, so that none is lost."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    halves = [f"{half}_{cell}" for cells in (_CELLS, _PER_ITERATION) for half in _HALVES for cell in cells]
    writer.writerow(["file", "run", "outcome", "cause", "collective", *_COLUMNS, *halves])
    for name, runs in named_runs:
        for number, run in enumerate(runs, 1):
            before = [name, number, str(run.outcome), run.cause, run.collective]
            writer.writerows([*before, *_flat(row)] for row in run.rows)
            if not run.rows:
                writer.writerow([*before, *[None] * (len(_COLUMNS) + len(halves))])
    click.echo(text.getvalue(), nl=False)


def _flat(row: Row) -> list[object]:
    halves = [getattr(row, half) for half in _HALVES]
    cells = [getattr(half, cell) if half else None for half in halves for cell in _CELLS]
    per_iteration = [
        getattr(half.per_iteration, cell) if half and half.per_iteration else None
        for half in halves
        for cell in _PER_ITERATION
    ]
    return [*(getattr(row, name) for name in _COLUMNS), *cells, *per_iteration]


def _tables(named_runs: list[Named]) -> None:
    many = len(named_runs) > 1 or len(named_runs[0][1]) > 1
    named = [(name, run) for file, runs in named_runs for name, run in zip(_titles(file, runs), runs, strict=True)]
    for at, (name, run) in enumerate(named):
        if many:
            click.echo(("\n" if at else "") + f"{name}:")
        _table(run)


def _titles(file: str, runs: Sequence[Run]) -> list[str]:
    """The file's name before each run, with the origin where the file has runs of several pods."""
    several = len({run.origin for run in runs}) > 1
    return [f"{file} ({run.origin})" if several and run.origin else file for run in runs]


def _table(run: Run) -> None:
    from gpuctl.nccl.messages import sizes_measured
    from gpuctl.nccl.model import Outcome

    click.echo(" ".join([run.collective or "collective not named", *_facts(run)]))
    for one in run.transports:
        click.echo(f"  rank {'?' if one.rank is None else one.rank} on {one.host or '?'}: {_network(one)}")
    if run.rows:
        per_iteration = any(
            half and half.per_iteration for row in run.rows for half in (row.out_of_place, row.in_place)
        )
        head = ("TIME US", "BUSBW", "WRONG", *(("P99 US", "MAX US") if per_iteration else ()))
        columns = ("BYTES", "TYPE", "REDOP", "ROOT", *(f"{half} {word}" for half in ("OUT", "IN") for word in head))
        output.table(columns, (_cells(row, per_iteration) for row in run.rows))
    for odd in run.not_numbers:
        where = f"{odd.size_bytes} bytes, {odd.half.replace('_', '-')}"
        click.echo(f"not a number: {odd.column.partition('_')[0]} {odd.printed} at {where}")
    if run.sizes_announced is not None and run.rows and (measured := sizes_measured(run)) < run.sizes_announced:
        click.echo(f"{measured} of the {run.sizes_announced} sizes in the heading were measured")
    if run.warning and run.outcome is Outcome.COMPLETE:
        click.echo(run.warning)
    if run.left_out:
        click.echo("this is an excerpt: lines are omitted")
    click.echo(f"{run.outcome}" + (f": {run.cause}" if run.cause else "") + _summary(run))


def _facts(run: Run) -> list[str]:
    hosts = list(dict.fromkeys(rank.host for rank in run.ranks if rank.host))
    gpus = list(dict.fromkeys(rank.gpu for rank in run.ranks if rank.gpu))
    versions = {"NCCL": run.versions.nccl, "nccl-tests": run.versions.nccl_tests, "CUDA": run.versions.cuda}
    where = output.names(hosts) or "unnamed hosts"
    parts = [f"{output.plural(len(run.ranks), 'rank')} listed on {where}"] if run.ranks else []
    parts += [", ".join(gpus)] if gpus else []
    parts += [f"{name} {value}" for name, value in versions.items() if value]
    parts += [run.versions.plugin] if run.versions.plugin else []
    parts += [f"NCCL_ALGO {','.join(run.forced_algorithms)}"] if run.forced_algorithms else []
    parts += [f"NCCL used {', '.join(run.algorithms)}"] if run.algorithms else []
    return [f"- {'; '.join(parts)}"] if parts else []


def _network(one: Transport) -> str:
    parts = [one.network or "network not named", f"({one.provider})" if one.provider else "", " ".join(one.nics)]
    gdr = {True: "GPUDirect RDMA", False: "no GPUDirect RDMA", None: ""}[one.gdr]
    return ", ".join(part for part in (" ".join(p for p in parts if p), gdr) if part)


def _cells(row: Row, per_iteration: bool) -> list[object]:
    cells: list[object] = [row.size_bytes, _shown(row.type), _shown(row.redop), _shown(row.root)]
    for half in (row.out_of_place, row.in_place):
        cells += [f"{half.time_us:.10g}", f"{half.busbw_gbs:.2f}", _wrong(half.wrong)] if half else ["-"] * 3
        one = half.per_iteration if half else None
        cells += ([f"{one.p99_us:.10g}", f"{one.max_us:.10g}"] if one else ["-"] * 2) if per_iteration else []
    return cells


def _wrong(value: float | None) -> str:
    return "not checked" if value is None else f"{value:g}"


def _shown(value: object) -> object:
    return "-" if value is None else value


def _summary(run: Run) -> str:
    from gpuctl.nccl import serialize
    from gpuctl.nccl.messages import size

    as_dict = serialize.run_as_dict(run)
    best = as_dict["max_busbw_gbs"]
    most = f"; best {best:.2f} GB/s at {size(as_dict['max_busbw_size_bytes'])}" if best is not None else ""
    return most + (f"; average line {run.avg_busbw_gbs:g} GB/s" if run.avg_busbw_gbs is not None else "")
