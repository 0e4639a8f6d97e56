"""nccl calibrate: measure the bandwidth of a fabric, and save it as the site's own baseline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.nccl import baselines, log_files, record_history, sweep_options, target_options
from gpuctl.cli.nccl.baselines import ContextRequest
from gpuctl.cli.nccl.sweep_options import SweepRequest
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.option_sections import Sectioned
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput
from gpuctl.core.exit_codes import INTERRUPTED
from gpuctl.core.signals import ctrl_c
from gpuctl.workflows.nccl_targets.model import TargetRequest

if TYPE_CHECKING:
    from gpuctl.nccl.baselines.model import Book
    from gpuctl.nccl.calibrate import Calibration
    from gpuctl.nccl.context import RunContext
    from gpuctl.nccl.model import Launch, LaunchResult, Sweep

DOING = "calibrate"
REPEATS = 5
FOR_LOGS = {"files", "instance", "network", "algo", "collective", "nodes", "gpus", "force", "check", "form"}
DEFAULT = "default"  # NCCL's own choice of an algorithm


@dataclass(frozen=True)
class CalibrateRequest:
    """Runs to make baseline rows from: `repeats` runs on the target, or logs of such runs (`files`).

    `force`: save rows below the fail limit in force. `check`: save nothing.
    """

    files: tuple[Path, ...]
    repeats: int
    force: bool
    check: bool
    context: ContextRequest
    sweep: SweepRequest
    target: TargetRequest


@click.command("calibrate", cls=Sectioned)
@options.as_request(
    CalibrateRequest,
    click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path(path_type=Path, allow_dash=True)),
    baselines.context_options,
    click.option(
        "--repeats",
        type=click.IntRange(3, 100),
        default=REPEATS,
        show_default=True,
        help="Number of runs, one after the other.",
    ),
    click.option("--force", is_flag=True, help="Save rows below the fail limit in force, marked as such."),
    click.option("--check", "--dry-run", "check", is_flag=True, help="Save nothing; show what would be saved."),
    sweep_options.sweep_options,
    target_options.target_options,
)
@options.output
def calibrate(request: CalibrateRequest, form: Output) -> None:
    """Measure the bandwidth of a fabric and save it as your own baseline, or make a baseline from logs.

    Runs one test on all nodes several times, and refuses the result if any run has a problem or if the runs differ by
    more than 5 %. With FILEs nothing is run: they are logs of three or more repeats of one run (--nodes and
    --gpus-per-node supply the counts if the logs lack them). Your own rows take precedence over those shipped
    with gpuctl; `gpuctl nccl baselines restore` undoes the last change.

    Exit code 1 if the measurement is refused, 2 if logs are.
    """
    from gpuctl.nccl.baselines import load

    book = load.book()  # an unreadable file is reported before anything runs
    if request.files:
        _from_files(request, book, form)
    else:
        _measure(request, book, form)


def _from_files(request: CalibrateRequest, book: Book, form: Output) -> None:
    from gpuctl.nccl import calibrate as calibration_rules

    if measuring := _options_for_measuring():
        wrong = f"{', '.join(measuring)} cannot be combined with logs"
        raise InvalidInput(DOING, wrong, "pass logs alone, or leave them out to measure")
    nodes = request.target.nodes
    if nodes and not re.fullmatch(r"[1-9]\d{0,8}", nodes):
        raise InvalidInput(
            DOING, f"--nodes {nodes}: with logs it is their number of nodes", "pass a number, or leave it out"
        )
    about = request.context.context(int(nodes) if nodes else None, request.sweep.gpus)
    runs = list(log_files.runs(request.files))
    baselines.agreed(DOING, runs, about, book)
    calibration = calibration_rules.calibrate([run for _, run in runs], about, book)
    calibration_rules.accept(calibration, request.force)
    _keep(calibration, book, request.check, form, ())


def _options_for_measuring() -> list[str]:
    """Options on the command line that do not apply to logs."""
    context = click.get_current_context()
    return [
        param.opts[0]
        for param in context.command.params
        if param.name not in FOR_LOGS
        and context.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
    ]


def _measure(request: CalibrateRequest, book: Book, form: Output) -> None:
    from gpuctl.nccl import calibrate as calibration_rules
    from gpuctl.nccl import flow, plan
    from gpuctl.workflows import nccl_targets

    about, sweep = _context_and_sweep(request, nccl_targets.gpus_per_node(request.target))
    baselines.new_instance(about.system or "", book)
    access = nccl_targets.node_access(request.target, sweep.gpus_per_node, target_options.notify)
    ((launch,),) = flow.planned("quick", access.nodes, plan.with_env(sweep, access.env))
    target_options.preflight(access, request.target)
    about = replace(about, nodes=len(access.nodes))
    results: list[LaunchResult] = []

    def keep_in_history() -> None:
        findings = flow.findings("quick", results, about, book)
        record_history.record_results("calibrate", access.where, results, findings, "the runs: {}")

    def keep_and_show() -> None:
        keep_in_history()
        _nothing_kept(["the measurement was not completed"], results, form)

    with ctrl_c() as broken_off, record_history.save_partial_results(results, keep_and_show):

        def once(number: int) -> LaunchResult:
            _progress(launch, f"repeat {number} of {request.repeats}")
            (end,) = access.runner.run([launch], _progress, broken_off)
            return end

        calibration_rules.measure(request.repeats, once, lambda end: _wrong(end, about, book), broken_off, results)
        interrupted = broken_off()
    keep_in_history()
    if interrupted:
        click.echo("interrupted: nothing is saved", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    calibration = _judged(results, about, book)
    _refused(calibration, request.force, results, form)
    _keep(calibration, book, request.check, form, results)
    _report_leftovers(results)


def _report_leftovers(results: Sequence[LaunchResult]) -> None:
    """Exit with status 1 if objects could not be removed from the cluster."""
    from gpuctl.nccl.judge import leftovers

    if stays := list(leftovers.in_cluster(results)):
        click.echo("\n".join(f"{one.subject}: {one.message}; {one.hint}" for one in stays), err=True)
        raise click.exceptions.Exit(1)


def _refused(calibration: Calibration, force: bool, results: Sequence[LaunchResult], form: Output) -> None:
    """Exit here if no row may be kept."""
    from gpuctl.nccl import calibrate as calibration_rules

    if calibration.refused:
        _refuse(
            calibration.refused,
            "`gpuctl nccl isolate` finds what is slow, flaky or fell back; fix it, then calibrate again",
            results,
            form,
        )
    slow = calibration_rules.too_slow(calibration)
    if slow and not force:
        _refuse(slow, calibration_rules.FORCE, results, form)


def _judged(results: Sequence[LaunchResult], about: RunContext, book: Book) -> Calibration:
    """Return the new rows, or the reasons why there are none."""
    from gpuctl.nccl import calibrate as calibration_rules

    wrong = [f"repeat {n}: {why}" for n, end in enumerate(results, 1) for why in _wrong(end, about, book)]
    if wrong:
        return calibration_rules.Calibration((), tuple(wrong), {})
    return calibration_rules.calibrate([end.run for end in results], about, book)


def _context_and_sweep(request: CalibrateRequest, gpus: int) -> tuple[RunContext, Sweep]:
    """Return the context and the sweep before anything runs; `InvalidInput` if they cannot make a row."""
    about, sweep = request.context.context(), request.sweep.sweep(gpus)
    if about.system is None:
        hint = "a type as in `gpuctl nccl baselines list`, or your own name for these machines"
        raise InvalidInput(DOING, "the machine type (--instance) is missing", hint)
    if not sweep.check:
        raise InvalidInput(DOING, "--verify 0: unchecked values cannot make a baseline", "leave it out")
    if "all" in (sweep.datatype, sweep.op):
        raise InvalidInput(DOING, "a baseline is for one type and one operation", "choose one with --datatype and --op")
    if about.algorithm and "NCCL_ALGO" in sweep.env:
        raise InvalidInput(DOING, "both --algo and --env NCCL_ALGO were given", "leave one of them out")
    requested = about.algorithm or sweep.env.get("NCCL_ALGO", DEFAULT)
    algorithm = baselines.algorithm_of(requested)
    env = dict(sweep.env) if algorithm == DEFAULT else {**sweep.env, "NCCL_ALGO": algorithm}
    sweep = replace(sweep, env=env, collective=about.collective or sweep.collective)
    known = replace(about, algorithm=algorithm, collective=sweep.collective, gpus_per_node=sweep.gpus_per_node)
    return known, sweep


def _wrong(end: LaunchResult, about: RunContext, book: Book) -> list[str]:
    """Reasons why this run cannot become a baseline."""
    from gpuctl.nccl.calibrate import unsound

    lost = [f"cannot confirm that nothing is left on {output.names(end.lost)}"] if end.lost else []
    return [*unsound(end.run, about, book), *lost]


def _progress(launch: Launch, message: str) -> None:
    if not message.endswith(" done"):
        click.echo(f"{output.names(launch.nodes, 2)}: {message}", err=True)


def _refuse(refused: Sequence[str], hint: str, results: Sequence[LaunchResult], form: Output) -> None:
    _nothing_kept(refused, results, form)
    if form == "table":
        click.echo(f"next: {hint}")
    raise click.exceptions.Exit(1)


def _nothing_kept(why: Sequence[str], results: Sequence[LaunchResult], form: Output) -> None:
    if form != "table":
        output.data({"kept": False, "refused": list(why), "repeats": _plain(results), "rows": []}, form)
        return
    _repeats(results)
    click.echo("nothing is saved:")
    for reason in why:
        click.echo(f"  {reason}")


def _keep(calibration: Calibration, book: Book, check: bool, form: Output, results: Sequence[LaunchResult]) -> None:
    """Show the rows and save them."""
    from gpuctl.nccl.baselines import load, site

    path = load.site_file()
    if form == "table":
        _repeats(results)
        baselines.show_new(calibration, book)
    if not check:
        site.save_rows(calibration.rows, path)
    if form != "table":
        rows = [load.plain(row) for row in calibration.rows]
        output.data({"kept": not check, "refused": [], "repeats": _plain(results), "rows": rows}, form)
    click.echo(
        f"{'would save' if check else 'saved'} {output.plural(len(calibration.rows), 'row')} in {path}", err=True
    )


def _repeats(results: Sequence[LaunchResult]) -> None:
    if results:
        rows = [(one["repeat"], one["outcome"], one["max_busbw_gbs"] or "-", one["seconds"]) for one in _plain(results)]
        output.table(("REPEAT", "OUTCOME", "BEST GB/S", "SECONDS"), rows)


def _plain(results: Sequence[LaunchResult]) -> list[dict[str, Any]]:
    from gpuctl.nccl import serialize

    names = ("outcome", "cause", "max_busbw_gbs")
    runs = [({name: serialize.run_as_dict(end.run)[name] for name in names}, round(end.seconds)) for end in results]
    return [{"repeat": number, **run, "seconds": seconds} for number, (run, seconds) in enumerate(runs, 1)]
