"""nccl calibrate: measure what this fabric reaches, and keep it as the site's own baseline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.errors import INTERRUPTED
from gpuctl.cli.nccl import baselines, log_files, record_history, sweep_options
from gpuctl.cli.nccl.targets import select
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.option_sections import Sectioned
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput
from gpuctl.core.signals import ctrl_c

if TYPE_CHECKING:
    from gpuctl.nccl.baselines.model import Book
    from gpuctl.nccl.calibrate import Calibration
    from gpuctl.nccl.context import RunContext
    from gpuctl.nccl.model import Launch, LaunchResult, Sweep

DOING = "calibrate"
REPEATS = 5
FOR_LOGS = {"files", "instance", "network", "algo", "collective", "nodes", "gpus_per_node", "force", "check", "form"}
DEFAULT = "default"  # NCCL's own choice of an algorithm


@click.command("calibrate", cls=Sectioned)
@click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path(path_type=Path, allow_dash=True))
@baselines.instance
@baselines.network
@baselines.algo
@baselines.collective
@click.option(
    "--repeats",
    type=click.IntRange(3, 100),
    default=REPEATS,
    show_default=True,
    help="How many times it is measured, one run after the other.",
)
@click.option("--gpus-per-node", type=click.IntRange(min=1), metavar="N", help="Of logs that do not tell it.")
@click.option("--force", is_flag=True, help="Keep rows below the fail limit in force, marked as such.")
@click.option("--check", "--dry-run", "check", is_flag=True, help="Keep nothing; show what would be kept.")
@sweep_options.sweep_options
@select.way_options
@options.output
def calibrate(files: tuple[Path, ...], check: bool, force: bool, form: Output, **params: Any) -> None:
    """Measure what a fabric reaches and keep it as your own baseline; or make one of logs that are there.

    Runs one test on all nodes several times, and refuses where anything is wrong with a run, or where the runs are more
    than 5 % apart. With FILEs nothing is run: they are three or more repeats of one run (--nodes is then how many nodes
    there were, of logs that do not tell it). Your own rows then win over those that come with gpuctl; `gpuctl nccl
    baselines restore` takes the last change back.

    Exit status 1 where what was measured is refused, 2 where logs are.
    """
    from gpuctl.nccl.baselines import load

    book = load.book()  # a file that cannot be read is told before anything runs
    if files:
        _from_files(files, book, check, force, form, params)
    else:
        _measured(book, check, force, form, params)


def _from_files(
    files: Sequence[Path], book: Book, check: bool, force: bool, form: Output, params: dict[str, Any]
) -> None:
    from gpuctl.nccl import calibrate as calibrating

    if measuring := _given_to_measure():
        wrong = f"{', '.join(measuring)} is for measuring, and logs were given"
        raise InvalidInput(DOING, wrong, "give logs alone, or leave them out to measure")
    nodes = params["nodes"]
    if nodes and not re.fullmatch(r"[1-9]\d{0,8}", nodes):
        raise InvalidInput(
            DOING, f"--nodes {nodes}: with logs it is how many there were", "give a number, or leave it out"
        )
    about = replace(_about(params), nodes=int(nodes) if nodes else None, gpus_per_node=params["gpus_per_node"])
    runs = list(log_files.runs(files))
    baselines.agreed(DOING, runs, about)
    calibration = calibrating.calibrate([run for _, run in runs], about, book)
    calibrating.accept(calibration, force)
    _keep(calibration, book, check, form, ())


def _given_to_measure() -> list[str]:
    """Options on the command line that do not apply to logs."""
    context = click.get_current_context()
    return [
        param.opts[0]
        for param in context.command.params
        if param.name not in FOR_LOGS
        and context.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
    ]


def _measured(book: Book, check: bool, force: bool, form: Output, params: dict[str, Any]) -> None:
    from gpuctl.nccl import calibrate as calibrating
    from gpuctl.nccl import flow, plan
    from gpuctl.nccl.judge import leftovers

    params = select.complete(params)
    about, sweep = _live(params)
    baselines.new_instance(about.system or "", book)
    access = select.node_access(**params)
    ((launch,),) = flow.planned("quick", access.nodes, plan.with_env(sweep, access.env))
    select.preflight(access, **params)
    about = replace(about, nodes=len(access.nodes))
    results: list[LaunchResult] = []

    def kept() -> None:
        record_history.keep(
            "calibrate", access.where, results, flow.findings("quick", results, about, book), "the runs: {}"
        )

    def kept_and_shown() -> None:
        kept()
        _nothing_kept(["it did not come to its end"], results, form)

    with ctrl_c() as broken_off, record_history.save_partial_results(results, kept_and_shown):

        def once(number: int) -> LaunchResult:
            _told(launch, f"repeat {number} of {params['repeats']}")
            (end,) = access.runner.run([launch], _told, broken_off)
            return end

        calibrating.measure(params["repeats"], once, lambda end: _wrong(end, about, book), broken_off, results)
        interrupted = broken_off()
    kept()
    if interrupted:
        click.echo("broken off: nothing is kept", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    calibration = _judged(results, about, book)
    _refused(calibration, force, results, form)
    _keep(calibration, book, check, form, results)
    if stays := list(leftovers.in_cluster(results)):
        click.echo("\n".join(f"{one.subject}: {one.message}; {one.hint}" for one in stays), err=True)
        raise click.exceptions.Exit(1)


def _refused(calibration: Calibration, force: bool, results: Sequence[LaunchResult], form: Output) -> None:
    """Exit here if no row may be kept."""
    from gpuctl.nccl import calibrate as calibrating

    if calibration.refused:
        _refuse(
            calibration.refused,
            "`gpuctl nccl isolate` finds what is slow, flaky or fell back; mend it, then calibrate again",
            results,
            form,
        )
    slow = calibrating.too_slow(calibration)
    if slow and not force:
        _refuse(slow, calibrating.FORCE, results, form)


def _judged(results: Sequence[LaunchResult], about: RunContext, book: Book) -> Calibration:
    """Return the new rows, or the reasons why there are none."""
    from gpuctl.nccl import calibrate as calibrating

    wrong = [f"repeat {n}: {why}" for n, end in enumerate(results, 1) for why in _wrong(end, about, book)]
    if wrong:
        return calibrating.Calibration((), tuple(wrong), {})
    return calibrating.calibrate([end.run for end in results], about, book)


def _live(params: dict[str, Any]) -> tuple[RunContext, Sweep]:
    """Return the context and the sweep before anything runs; raises `InvalidInput` if they cannot make a row."""
    about, sweep = _about(params), sweep_options.sweep_of(**params)
    if params["gpus_per_node"] is not None:
        raise InvalidInput(
            DOING, "--gpus-per-node is for logs that do not tell it", "--gpus says how many to measure with"
        )
    if about.system is None:
        hint = "a type as `gpuctl nccl baselines list` has it, or your own name for these machines"
        raise InvalidInput(DOING, "the machine type (--instance) is not told", hint)
    if not sweep.check:
        raise InvalidInput(DOING, "--no-verify: values that nobody checked vouch for nothing", "leave it out")
    if about.algorithm and "NCCL_ALGO" in sweep.env:
        raise InvalidInput(DOING, "both --algo and --env NCCL_ALGO were given", "leave one of them out")
    requested = about.algorithm or sweep.env.get("NCCL_ALGO", DEFAULT)
    algorithm = baselines.algorithm_of(requested)
    env = dict(sweep.env) if algorithm == DEFAULT else {**sweep.env, "NCCL_ALGO": algorithm}
    sweep = replace(sweep, env=env, collective=about.collective or sweep.collective)
    known = replace(about, algorithm=algorithm, collective=sweep.collective, gpus_per_node=sweep.gpus_per_node)
    return known, sweep


def _about(params: dict[str, Any]) -> RunContext:
    names = ("instance", "network", "algo", "collective")
    return baselines.about_of(**{name: params[name] for name in names})


def _wrong(end: LaunchResult, about: RunContext, book: Book) -> list[str]:
    """Reasons why this run cannot become a baseline."""
    from gpuctl.nccl.calibrate import unsound

    lost = [f"cannot say that nothing is left on {output.names(end.lost)}"] if end.lost else []
    return [*unsound(end.run, about, book), *lost]


def _told(launch: Launch, message: str) -> None:
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
    click.echo("nothing is kept:")
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
        site.keep(calibration.rows, path)
    if form != "table":
        rows = [load.plain(row) for row in calibration.rows]
        output.data({"kept": not check, "refused": [], "repeats": _plain(results), "rows": rows}, form)
    click.echo(f"{'would keep' if check else 'kept'} {output.plural(len(calibration.rows), 'row')} in {path}", err=True)


def _repeats(results: Sequence[LaunchResult]) -> None:
    if results:
        rows = [(one["repeat"], one["outcome"], one["max_busbw_gbs"] or "-", one["seconds"]) for one in _plain(results)]
        output.table(("REPEAT", "OUTCOME", "BEST GB/S", "SECONDS"), rows)


def _plain(results: Sequence[LaunchResult]) -> list[dict[str, Any]]:
    from gpuctl.nccl import serialize

    names = ("outcome", "cause", "max_busbw_gbs")
    runs = [({name: serialize.run_as_dict(end.run)[name] for name in names}, round(end.seconds)) for end in results]
    return [{"repeat": number, **run, "seconds": seconds} for number, (run, seconds) in enumerate(runs, 1)]
