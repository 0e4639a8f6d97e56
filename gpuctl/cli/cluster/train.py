"""cluster train: a training in the pods of an environment, checked before, heard meanwhile, ended everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster import train_report as show
from gpuctl.cli.cluster.environment_options import on_cluster, which
from gpuctl.cli.cluster.train_report import Screen
from gpuctl.cli.errors import INTERRUPTED
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output

if TYPE_CHECKING:
    from gpuctl.cluster.environment import Environment
    from gpuctl.cluster.train.prepare import Wish
    from gpuctl.cluster.train.watch import Heard, Training
    from gpuctl.edges.kube.cluster import Cluster

PROBLEMS, NOT_DONE = 1, 3


class RestIsTheScripts(click.Command):
    """What stands after SCRIPT belongs to it, also where it looks like an option of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = self._script_at(args)
        return super().parse_args(ctx, args if at is None else [*args[: at + 1], "--", *args[at + 1 :]])

    def _script_at(self, args: Sequence[str]) -> int | None:
        known = {word: param for param in self.params for word in (*param.opts, *param.secondary_opts)}
        at = plain = 0
        while at < len(args) and args[at] != "--":
            param = known.get(args[at])
            if not args[at].startswith("-"):
                plain += 1
                if plain == 2:
                    return at
            elif isinstance(param, click.Option) and not (param.is_flag or param.count):
                at += 1
            at += 1
        return None


def _variables(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for (name, equals, value), each in zip(pairs, given, strict=True):
        if not (equals and name.isidentifier()) or "\n" in value or "\0" in value:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", ctx, param)
    return {name: value for name, _, value in pairs}


def _folder(ctx: click.Context, param: click.Parameter, given: str) -> str:
    if not given.startswith("/"):
        raise click.BadParameter("give it by its whole path, such as /workspace/code", ctx, param)
    return given


python = click.option(
    "--python", metavar="PROGRAM", default="python3", show_default=True, help="Python in the pods, for our own part."
)
how = options.together(
    click.option(
        "--launcher",
        type=click.Choice(["auto", "deepspeed", "deepspeed-nossh", "torchrun"]),
        default="auto",
        show_default=True,
        help="deepspeed: by hostfile and ssh from the first; the others: in every pod. auto: torchrun if all have it.",
    ),
    click.option("--nproc-per-node", type=click.IntRange(1), help="Processes a pod.  [default: gpus.per_node]"),
    click.option("--nodes", type=click.IntRange(1), help="Only so many pods, from the first on.  [default: all]"),
    click.option("--folder", default="/workspace", show_default=True, callback=_folder, help="Where in the pods."),
    click.option("--env", "variables", multiple=True, metavar="K=V", callback=_variables, help="A variable for it."),
    python,
)
ways = options.together(
    click.option("--all-output", is_flag=True, help="What every pod prints, not the first alone."),
    click.option("--detach", is_flag=True, help="Begin it, and do not wait for it."),
    click.option("--attach", is_flag=True, help="Listen to the training that was begun last, from its first line."),
    click.option("--stop", is_flag=True, help="End the training that was begun last; where it has ended, any other."),
)


@click.command("train", cls=RestIsTheScripts)
@which
@click.argument("script", default="")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@how
@ways
@options.check
@options.output
def train(name: str, script: str, args: Sequence[str], check: bool, form: Output, **given: Any) -> None:
    """Train in the pods of an environment: SCRIPT and its ARGS, a path in --folder.

    First all pods are checked, at the same time; --check does that alone and shows what each pod would run. A training
    goes on in the pods when the connection breaks or this terminal closes: --attach listens again. Ctrl-C ends it in
    all pods, but not with --attach. The first pod that fails is named, and the others are ended.
    """
    _check_ways(script, check, form, given)
    cluster, env = on_cluster(name, given)
    if given["stop"]:
        _stop(cluster, env, given["python"])
    elif given["attach"]:
        _attach(cluster, env, given)
    else:
        _train(cluster, env, _wish(script, args, given), check, form, given)


def _check_ways(script: str, check: bool, form: Output, given: dict[str, Any]) -> None:
    chosen = [word for word in ("detach", "attach", "stop") if given[word]] + (["check"] if check else [])
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} does not go with --{chosen[1]}")
    if (given["attach"] or given["stop"]) == bool(script):
        raise click.UsageError("give a SCRIPT, or --attach or --stop without one")
    if form != "table" and not check:
        raise click.UsageError("--output goes with --check")


def _wish(script: str, args: Sequence[str], given: dict[str, Any]) -> Wish:
    from gpuctl.cluster.train.prepare import Wish

    more = {key: given[key] for key in ("launcher", "nodes", "folder", "variables", "python")}
    return Wish(script, args, processes=given["nproc_per_node"], **more)


# ---- begin ----------------------------------------------------------------------------------------------------------


def _train(cluster: Cluster, env: Environment, wish: Wish, check: bool, form: Output, given: dict[str, Any]) -> None:
    from gpuctl.cluster.train import flow, prepare
    from gpuctl.cluster.train.watch import Watch
    from gpuctl.core.run_history import current_user
    from gpuctl.core.signals import ctrl_c

    ready = prepare.prepare(cluster, env, wish)
    show.ready(ready, form, check)
    if check:
        bad = [each for each in ready.findings if each.verdict in ("FAIL", "UNKNOWN")]
        raise click.exceptions.Exit(PROBLEMS if bad else 0)
    if ready.failed:
        raise click.exceptions.Exit(PROBLEMS)
    with ctrl_c() as asked:
        training = flow.start(ready, current_user())
        click.echo(f"training {training.name} began in {output.plural(len(ready.pods), 'pod')}", err=True)
        if given["detach"] and not asked():
            click.echo("the same command with --attach, and without the script, listens to it", err=True)
            return
        screen = Screen(env.pod_name(0), given["all_output"])
        heard = Watch(training, screen).until_ended(asked)
        _finish(training, ready.pods, heard, screen, broken_off=asked())


# ---- listen ---------------------------------------------------------------------------------------------------------


def _attach(cluster: Cluster, env: Environment, given: dict[str, Any]) -> None:
    from gpuctl.cluster.train import runs
    from gpuctl.cluster.train.watch import Watch
    from gpuctl.core.signals import ctrl_c

    looked = runs.look(cluster, env, given["python"])
    found = runs.newest(looked)
    click.echo(f"{found.words}: it {'goes on' if found.runs else 'has ended'}", err=True)
    with ctrl_c() as asked:
        screen = Screen(env.pod_name(0), given["all_output"])
        heard = Watch(found.training, screen).until_ended(asked)
        if asked():
            click.echo("not listening any more; the training was left alone", err=True)
            raise click.exceptions.Exit(INTERRUPTED)
        _finish(found.training, looked.pods, heard, screen)


def _finish(training: Training, pods: Sequence[Any], heard: Heard, screen: Screen, broken_off: bool = False) -> None:
    """How it ended; what still runs is ended where one failed, or we were told to."""
    from gpuctl.cluster.train import flow

    if broken_off:
        click.echo("ending it in all pods", err=True)
        raise click.exceptions.Exit(INTERRUPTED if show.gone(flow.end(training, pods)) else NOT_DONE)
    if heard.lost:
        click.echo(f"{heard.lost}; the training was left alone, --attach listens to it again", err=True)
        raise click.exceptions.Exit(NOT_DONE)
    if failure := heard.first:
        show.failure(failure, screen)
        show.gone(flow.end(training, pods))
        raise click.exceptions.Exit(PROBLEMS)
    click.echo(f"training {training.name} ended well", err=True)


def _stop(cluster: Cluster, env: Environment, python: str) -> None:
    from gpuctl.cluster.train import flow, runs

    looked, sure = runs.look(cluster, env, python), []
    for each in runs.to_end(looked):
        click.echo(f"{'ending' if each.runs else 'it has ended; making sure of'} {each.words}", err=True)
        sure.append(show.gone(flow.end(each.training, looked.pods)))
    raise click.exceptions.Exit(0 if all(sure) else NOT_DONE)
