"""nccl report and nccl history: show measurements on a terminal, as data and as a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import files, findings, options, output
from gpuctl.cli.shared.output import Output
from gpuctl.cli.shared.report import data
from gpuctl.core.errors import InvalidInput
from gpuctl.engine import printable

if TYPE_CHECKING:
    from gpuctl.domain.report import Report
    from gpuctl.nccl.history import Measured

WRITE = "write the page"
HEAD = ("NUMBER", "AT", "BY", "KIND", "NODES", "RUNS", "VERDICT", "INVENTORY")
WIDTH = 200  # of a map if standard output is not a terminal


@click.command()
@click.option("--node", metavar="NAME", default="", help="Only measurements this node took part in.")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Number of measurements.")
@options.output
def history(node: str, last: int, form: Output) -> None:
    """List the measurements taken from this machine, newest first."""
    from gpuctl.nccl import history as store

    measurements = store.latest(last, node)
    if node and not measurements:
        _report_unknown_node(node)
    if form != "table":
        output.data([_summary(measured) for measured in measurements], form)
        return
    output.table(HEAD, rows(measurements))


def rows(measurements: Sequence[Measured]) -> list[tuple[object, ...]]:
    """Cells of each measurement, below HEAD."""
    return [(m.id, m.at, m.by, m.kind, len(m.nodes), len(m.results), worst(m), m.inventory) for m in measurements]


def _report_unknown_node(node: str) -> None:
    """Explain an empty list: suggest a similar name, or list the nodes that have measurements."""
    from difflib import get_close_matches

    from gpuctl.nccl import history as store

    known = store.nodes()
    close = get_close_matches(node, known, 1, cutoff=0.75)
    meant = f": did you mean {close[0]}?" if close else f", but on {output.names(known)}" if known else ", nor anywhere"
    click.echo(f"nothing was measured on {node}{meant}", err=True)


@click.command()
@click.argument("number", type=click.IntRange(1, 2**63 - 1), required=False)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write an offline HTML page to FILE.",
)
@click.option("--instance", metavar="NAME", default="", help="Machine type; the page draws its baseline.")
@options.output
def report(number: int | None, html: Path | None, instance: str, form: Output) -> None:
    """Show one measurement in full: findings, pairs and runs. Without NUMBER, show the last one."""
    from gpuctl.nccl import history as store

    measured = store.load(number) if number is not None else _last()
    if html is not None:
        _write(measured, html, instance)
    if form != "table":
        data(_document(measured), form)
    else:
        click.echo("\n".join(lines(measured, shutil.get_terminal_size((WIDTH, 0)).columns)))


def _last() -> Measured:
    from gpuctl.nccl import history as store

    measurements = store.latest(1)
    if not measurements:
        raise InvalidInput(
            "show the last measurement", "nothing was measured from this machine yet", "start with `gpuctl nccl run`"
        )
    return measurements[0]


def lines(measured: Measured, width: int) -> Iterator[str]:
    """Lines of a measurement: findings, the map of its pairs for a terminal of this width, and its runs."""
    from gpuctl.cli.nccl import heat
    from gpuctl.nccl.bandwidth import speed
    from gpuctl.nccl.report import matrix
    from gpuctl.nccl.report.plots import run_name

    yield f"{measured.kind} on {output.plural(len(measured.nodes), 'node')} of {measured.inventory}, {measured.at}"
    yield from (printable(line) for line in findings.lines(measured.findings))
    pairs = matrix.pair_matrix(measured.results)
    if pairs.nodes:
        yield from heat.lines(pairs, width)
    runs = [
        (run_name(e), e.run.outcome, _number(speed(e.run)), f"{e.seconds:.0f}", e.run.cause or "")
        for e in measured.results
    ]
    yield from output.columns(("RUN", "OUTCOME", "MEDIAN GB/S", "SECONDS", "CAUSE"), runs)


def _write(measured: Measured, html: Path, instance: str) -> None:
    from gpuctl.nccl.report.bars import bars
    from gpuctl.nccl.report.page import Content, page

    title = f"NCCL {measured.kind}: {output.plural(len(measured.nodes), 'node')} of {measured.inventory}"
    at, drawn = f"Measured {measured.at} by {measured.by}.", bars(measured.results, instance) if instance else ()
    files.write(html, page(Content(title, at, measured.results, measured.findings, drawn)), WRITE)
    click.echo(f"wrote {html}", err=True)


def _document(measured: Measured) -> Report:
    """Build the report of a measurement; showing it succeeds, whatever was found then."""
    from gpuctl.domain.report import Report
    from gpuctl.nccl import serialize

    details = {**_summary(measured), "launches": [serialize.launch_as_dict(end) for end in measured.results]}
    return Report("nccl report", {measured.inventory: measured.findings}, details, code=0)


def _summary(measured: Measured) -> dict[str, object]:
    summary = {name: getattr(measured, name) for name in ("id", "at", "by", "kind", "inventory", "nodes")}
    return {**summary, "runs": len(measured.results), "verdict": worst(measured)}


def worst(measured: Measured) -> str:
    """Worst verdict; UNKNOWN if nothing was judged."""
    from gpuctl.domain.findings import overall

    return str(overall(measured.findings))


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"
