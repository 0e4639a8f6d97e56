"""cluster train: check the pods, start a training in them, follow it, and end it everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster import train_report as show
from gpuctl.cli.cluster.environment_options import selection_options
from gpuctl.cli.cluster.train_report import Screen
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.cluster.train.request import TrainRequest
from gpuctl.core.exit_codes import INTERRUPTED, NOT_DONE, PROBLEMS

if TYPE_CHECKING:
    from gpuctl.cluster.access import PodAccess
    from gpuctl.cluster.train.watch import Training, TrainingState
    from gpuctl.remote.model import PodTarget


class PassThroughArgs(click.Command):
    """Everything after SCRIPT belongs to the script, even if it looks like an option of gpuctl."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = self._script_at(args)
        return super().parse_args(ctx, args if at is None else [*args[: at + 1], "--", *args[at + 1 :]])

    def _script_at(self, args: Sequence[str]) -> int | None:
        options_by_name = {option: param for param in self.params for option in (*param.opts, *param.secondary_opts)}
        at = plain = 0
        while at < len(args) and args[at] != "--":
            param = options_by_name.get(args[at])
            if not args[at].startswith("-"):
                plain += 1
                if plain == 2:
                    return at
            elif isinstance(param, click.Option) and not (param.is_flag or param.count):
                at += 1
            at += 1
        return None


def _variables(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in values]
    for (name, equals, value), text in zip(pairs, values, strict=True):
        if not (equals and name.isidentifier()) or "\n" in value or "\0" in value:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", ctx, param)
    return {name: value for name, _, value in pairs}


def _folder(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.startswith("/"):
        raise click.BadParameter("use an absolute path such as /workspace/code", ctx, param)
    return value


python = click.option(
    "--python",
    metavar="PROGRAM",
    default="python3",
    show_default=True,
    help="Python in the pods for gpuctl's own programs.",
)
launch_options = options.together(
    click.option(
        "--launcher",
        type=click.Choice(["auto", "deepspeed", "deepspeed-nossh", "torchrun"]),
        default="auto",
        show_default=True,
        help="deepspeed: by hostfile and ssh from the first pod; others: in every pod. auto: torchrun if available.",
    ),
    click.option(
        "--nproc-per-node", "processes", type=click.IntRange(1), help="Processes per pod.  [default: gpus.per_node]"
    ),
    click.option("--nodes", type=click.IntRange(1), help="Number of pods, from the first one.  [default: all]"),
    click.option(
        "--folder",
        metavar="DIR",
        default="/workspace",
        show_default=True,
        callback=_folder,
        help="Working folder in the pods.",
    ),
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="K=V",
        callback=_variables,
        help="An environment variable for the training.",
    ),
    python,
)
mode_options = options.together(
    click.option("--all-output", is_flag=True, help="Show the output of all pods, not only the first."),
    click.option("--detach", is_flag=True, help="Start it and return."),
    click.option("--attach", is_flag=True, help="Follow the most recent training, from its first line."),
    click.option(
        "--stop",
        is_flag=True,
        help="End the most recent training; if it has already ended, stop any training still running.",
    ),
)


@dataclass(frozen=True)
class TrainCommand:
    selection: EnvironmentSelection
    training: TrainRequest
    all_output: bool = False
    detach: bool = False
    attach: bool = False
    stop: bool = False

    @property
    def actions(self) -> list[str]:
        return [action for action in ("detach", "attach", "stop") if getattr(self, action)]


@click.command("train", cls=PassThroughArgs)
@options.as_request(
    TrainCommand,
    selection_options,
    click.argument("script", default=""),
    click.argument("args", nargs=-1, type=click.UNPROCESSED),
    launch_options,
    mode_options,
)
@options.check
@options.output
def train(request: TrainCommand, check: bool, form: Output) -> None:
    """Train in the pods of an environment: run SCRIPT, a path in --folder, with its ARGS.

    First all pods are checked concurrently; --check only does that, and shows each pod's command. A training continues
    in the pods when the connection breaks or this terminal closes: --attach follows it again. Ctrl-C ends it in all
    pods, except with --attach. The first pod that fails is named, and the others are ended.
    """
    from gpuctl.cluster.access import open_access

    _check_options(request, check, form)
    access = open_access(request.selection)
    if request.stop:
        _stop(access, request.training.python)
    elif request.attach:
        _attach(access, request)
    else:
        _train(access, request, check, form)


def _check_options(request: TrainCommand, check: bool, form: Output) -> None:
    actions = request.actions + (["check"] if check else [])
    if len(actions) > 1:
        raise click.UsageError(f"--{actions[0]} does not go with --{actions[1]}")
    if (request.attach or request.stop) == bool(request.training.script):
        raise click.UsageError("pass a SCRIPT, or --attach or --stop without one")
    if form != "table" and not check:
        raise click.UsageError("--output goes with --check")


# ---- start ----------------------------------------------------------------------------------------------------------


def _train(access: PodAccess, request: TrainCommand, check: bool, form: Output) -> None:
    from gpuctl.cluster.train import flow, prepare
    from gpuctl.cluster.train.watch import Watch
    from gpuctl.core.run_history import current_user
    from gpuctl.core.signals import ctrl_c

    ready = prepare.prepare(access.cluster, access.env, request.training)
    show.ready(ready, access.env.name, form, check)
    if check:
        bad = [finding for finding in ready.findings if finding.verdict in ("FAIL", "UNKNOWN")]
        raise click.exceptions.Exit(PROBLEMS if bad else 0)
    if ready.failed:
        raise click.exceptions.Exit(PROBLEMS)
    with ctrl_c() as interrupted:
        training = flow.start(ready, current_user())
        click.echo(f"training {training.name} started in {output.plural(len(ready.pods), 'pod')}", err=True)
        if request.detach and not interrupted():
            click.echo("follow it with the same command with --attach and without the script", err=True)
            return
        screen = Screen(access.env.pod_name(0), request.all_output)
        state = Watch(training, screen).until_finished(interrupted)
        _finish(training, ready.pods, state, screen, broken_off=interrupted())


# ---- follow ---------------------------------------------------------------------------------------------------------


def _attach(access: PodAccess, request: TrainCommand) -> None:
    from gpuctl.cluster.train import runs
    from gpuctl.cluster.train.watch import Watch
    from gpuctl.core.signals import ctrl_c

    survey = runs.survey(access.cluster, access.env, request.training.python)
    training = runs.newest(survey)
    click.echo(f"{training.description}: it {'is running' if training.runs else 'has ended'}", err=True)
    with ctrl_c() as interrupted:
        screen = Screen(access.env.pod_name(0), request.all_output)
        state = Watch(training.training, screen).until_finished(interrupted)
        if interrupted():
            click.echo("stopped following; the training continues", err=True)
            raise click.exceptions.Exit(INTERRUPTED)
        _finish(training.training, survey.pods, state, screen)


def _finish(
    training: Training, pods: Sequence[PodTarget], state: TrainingState, screen: Screen, broken_off: bool = False
) -> None:
    """Report the end; end what still runs if one pod failed or the user interrupted."""
    from gpuctl.cluster.train import flow

    if broken_off:
        click.echo("ending the training in all pods", err=True)
        raise click.exceptions.Exit(INTERRUPTED if show.gone(flow.end(training, pods)) else NOT_DONE)
    if state.lost:
        click.echo(f"{state.lost}; the training continues, --attach follows it again", err=True)
        raise click.exceptions.Exit(NOT_DONE)
    if failure := state.first:
        show.failure(failure, screen)
        show.gone(flow.end(training, pods))
        raise click.exceptions.Exit(PROBLEMS)
    click.echo(f"training {training.name} completed successfully", err=True)


def _stop(access: PodAccess, python: str) -> None:
    from gpuctl.cluster.train import flow, runs

    survey, confirmed = runs.survey(access.cluster, access.env, python), []
    for training in runs.to_end(survey):
        click.echo(f"{'ending' if training.runs else 'already ended, checking'} {training.description}", err=True)
        confirmed.append(show.gone(flow.end(training.training, survey.pods)))
    raise click.exceptions.Exit(0 if all(confirmed) else NOT_DONE)
