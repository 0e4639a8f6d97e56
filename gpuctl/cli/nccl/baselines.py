"""nccl baselines: list, explain and restore the bandwidths that runs are judged by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

import click

from gpuctl.cli.nccl import sweep_options
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.nccl.baselines.model import Baseline, Book
    from gpuctl.nccl.calibrate import Calibration
    from gpuctl.nccl.context import RunContext
    from gpuctl.nccl.model import Run

instance = click.option(
    "--instance", metavar="NAME", help="Machine type: p5.48xlarge, or your own name for machines you calibrated."
)
network = click.option(
    "--network",
    metavar="NAME",
    type=sweep_options.Network(),
    help="Network that NCCL should use: efa, ib, roce, socket.  [default: by machine type, if known]",
)
collective = click.option(
    "--collective", metavar="NAME", help="Collective: all_reduce, sendrecv, ...  [default: from the log]"
)
algo = click.option("--algo", metavar="NAME", help="Value of NCCL_ALGO; `default` if it was not set.")
strict = click.option("--strict", is_flag=True, help="Exit with 1 also for WARN.")
context_options = options.together(instance, network, algo, collective)


@dataclass(frozen=True)
class ContextRequest:
    """Facts about runs that their logs may lack; None if the log is to supply them."""

    instance: str | None = None
    network: str | None = None
    algo: str | None = None
    collective: str | None = None

    def context(self, nodes: int | None = None, gpus_per_node: int | None = None) -> RunContext:
        """Context of the runs; `InvalidInput` for an unknown collective or algorithm."""
        from gpuctl.nccl.bandwidth import COLLECTIVES
        from gpuctl.nccl.context import RunContext

        if self.collective is not None and self.collective not in COLLECTIVES:
            hint = f"it can be {', '.join(COLLECTIVES)}"
            raise InvalidInput(f"judge {self.collective!r}", "nccl-tests has no such test", hint)
        return RunContext(
            self.instance,
            nodes,
            gpus_per_node,
            network=self.network,
            algorithm=_set_to(self.algo) if self.algo else None,
            collective=self.collective,
        )


@click.group(cls=Group)
def baselines() -> None:
    """Show the bandwidths that runs are judged by, and their sources."""


@baselines.command("list")
@options.output
def list_(form: Output) -> None:
    """List all rows, your own first; the first row that fits a run judges it."""
    from gpuctl.nccl.baselines import load

    book = load.book()
    if form == "table":
        show(book.rows)
        _not_reached(book.rows)
    else:
        output.data([_whole(row) for row in book.rows], form)


@baselines.command()
def restore() -> None:
    """Undo the last calibration; a second restore brings it back."""
    from gpuctl.nccl.baselines import load, site

    path = load.site_file()
    restored = site.restore(path)
    if restored.rows:
        show(replace(row, site=True) for row in restored.rows)
    removed = "the unreadable file is" if restored.removed is None else output.plural(restored.removed, "row")
    back = output.plural(restored.put_back, "row")
    click.echo(f"{removed} removed, {back} restored: {path} has {output.plural(len(restored.rows), 'row')}", err=True)


@baselines.command()
@click.argument("name", metavar="MACHINE-TYPE")
@options.output
def explain(name: str, form: Output) -> None:
    """Explain a machine type: its line rate, network, and every baseline row with source and reason."""
    from gpuctl.nccl.baselines import load

    book = load.book()
    rows = [row for row in book.rows if name in row.systems]
    if name not in book.known:
        hint = f"it can be {', '.join(book.known)}; `gpuctl nccl calibrate` adds your own"
        raise InvalidInput(f"explain {name}", "it has no baseline and no line rate", hint)
    if form == "table":
        _explain(name, book, rows)
    else:
        system = book.systems.get(name)
        system_fields = load.plain_system(system) if system else None
        output.data({"system": system_fields, "baselines": [_whole(row) for row in rows]}, form)


def agreed(doing: str, runs: Iterable[tuple[str, Run]], stated: RunContext, book: Book) -> None:
    """Raise `InvalidInput` if a log contradicts an option, listing every contradiction."""
    from gpuctl.nccl.baselines.consistency import contradicted

    wrong = [f"{name}: {why}" for name, run in runs for why in contradicted(run, stated, book)]
    if wrong:
        hint = "leave out options that the logs answer, or give the log that the options describe"
        raise InvalidInput(doing, "\n  ".join(wrong), hint)


def known_instance(name: str | None, doing: str, book: Book) -> None:
    """Raise `InvalidInput` for an unknown machine type, so that a typo is reported before anything runs."""
    if name is None or name in book.known:
        return
    hint = f"it can be {', '.join(book.known)}; `gpuctl nccl calibrate` adds a new name"
    raise InvalidInput(doing, f"unknown machine type {name!r}{_meant(name, book)}", hint)


def new_instance(name: str, book: Book) -> None:
    """Warn on standard error if a calibration is the first of its name, which may be misspelt."""
    if name not in book.known:
        click.echo(f"{name} is a new name{_meant(name, book)}: its rows will be the first", err=True)


def _meant(name: str, book: Book) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, book.known, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _set_to(value: str) -> str:
    """Value that NCCL_ALGO may take: algorithms for all or for single collectives, or "default"."""
    from gpuctl.nccl.context import DEFAULT
    from gpuctl.nccl.parsing.algorithms import requested, unknown

    if value.lower() == DEFAULT:
        return DEFAULT
    if wrong := unknown(value):
        _no_algorithm(wrong[0])
    return ";".join(requested(value))


def algorithm_of(name: str) -> str:
    """NCCL's spelling of an algorithm, or "default"; raises `InvalidInput` for any other word."""
    from gpuctl.nccl.context import DEFAULT
    from gpuctl.nccl.parsing.algorithms import algorithm

    return DEFAULT if name.lower() == DEFAULT else algorithm(name) or _no_algorithm(name)


def _no_algorithm(name: str) -> NoReturn:
    from gpuctl.nccl.parsing.algorithms import ALGORITHMS

    hint = f"it can be default, {', '.join(ALGORITHMS)}"
    raise InvalidInput(f"take {name!r} for an algorithm", "NCCL has no such algorithm", hint)


def show(rows: Iterable[Baseline]) -> None:
    """Print as a table."""
    head = ("MACHINE TYPE", "NODES", "GPUS", "COLLECTIVE", "ALGORITHM", "SIZES", "EXPECT", "WARN", "FAIL", "FROM")
    output.table(head, [_cells(row) for row in rows])


def show_new(calibration: Calibration, book: Book) -> None:
    """Print the rows of a calibration beside the measured values and the limits in force until now."""
    rows = []
    for row in calibration.rows:
        speeds = calibration.speeds.get(row.from_bytes, ())
        spread = f"{min(speeds):g} to {max(speeds):g}" if speeds else "-"
        cells = _cells(row)
        forced = row.from_bytes in {**calibration.below, **calibration.below_site}
        rows.append((*cells[:9], spread, _until_now(row, book), "FORCED" if forced else ""))
    head = ("MACHINE TYPE", "NODES", "GPUS", "COLLECTIVE", "ALGORITHM", "SIZES", "EXPECT", "WARN", "FAIL")
    output.table((*head, "MEASURED", "UNTIL NOW", ""), rows)


def _until_now(row: Baseline, book: Book) -> str:
    from gpuctl.nccl.context import RunContext

    shape = (row.systems[0], row.nodes[0], row.gpus_per_node, row.processes_per_node)
    before = book.row_for(RunContext(*shape, algorithm=row.algorithms[0], collective=row.collective), row.from_bytes)
    if before is None:
        return "no row"
    limit = "warn" if before.fail is None else "fail"
    return f"{'your own' if before.site else before.kind}, {limit} below {before.least:g}"


def _not_reached(rows: Sequence[Baseline]) -> None:
    """Note about rows that a default run never reaches."""
    from gpuctl.nccl.messages import flag
    from gpuctl.nccl.model import Sweep

    end = Sweep().end_bytes
    above = max((row.to_bytes for row in rows if row.from_bytes > end), default=None)
    if above is not None:
        message = f"rows for sizes above {flag(end)}iB are not reached by default"
        click.echo(f"{message}: `gpuctl nccl run -e {flag(above)}` reaches them")


def _cells(row: Baseline) -> tuple[object, ...]:
    from gpuctl.nccl.baselines import load

    fields = load.plain(row)
    limits = ["-" if limit is None else f"{limit:g}" for limit in (row.expect, row.warn, row.fail)]
    sizes = fields["from"] if fields["from"] == fields["to"] else f"{fields['from']} to {fields['to']}"
    names, algorithms = ", ".join(row.systems), ", ".join(row.algorithms)
    return (names, fields["nodes"], row.gpus_per_node, row.collective, algorithms, sizes, *limits, row.origin)


def _whole(row: Baseline) -> dict[str, object]:
    from gpuctl.nccl.baselines import load

    return {**load.plain(row), "site": row.site, "where": row.where}


def _explain(name: str, book: Book, rows: list[Baseline]) -> None:
    system = book.systems.get(name)
    if system:
        gpus = f"{system.gpus} {system.gpu} GPUs" if system.gpu else f"{system.gpus} GPUs"
        click.echo(f"{name}: {gpus}, {system.line_rate_gbs:g} GB/s a node, {system.network}")
        click.echo(f"  source: {system.source}")
    for row in rows:
        cells = _cells(row)
        click.echo(f"{row.collective}, {cells[1]} nodes of {row.gpus_per_node} GPUs, {cells[4]}, {cells[5]}")
        click.echo(f"  GB/s: expect {cells[6]}, warn below {cells[7]}, fail below {cells[8]}")
        click.echo(f"  {row.origin}\n  why: {row.why}\n  {row.where}")
        for what, value in row.measured.items():
            click.echo(f"  {what}: {value}")
    _not_reached(rows)
    if not rows:
        click.echo("no baseline: runs are reported and not judged, until `gpuctl nccl calibrate` records one")
