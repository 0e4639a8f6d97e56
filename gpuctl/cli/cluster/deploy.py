"""cluster diff, deploy, status, scale, destroy: an environment on a live cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster import deploy_report as show
from gpuctl.cli.cluster.environment_options import on_cluster, which
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.cluster.deploy.flow import Wish
    from gpuctl.cluster.deploy.model import Plan
    from gpuctl.cluster.environment import Environment
    from gpuctl.edges.kube.cluster import Cluster

PROBLEMS = 1

how = options.together(
    click.option(
        "--mode",
        type=click.Choice(["rdma", "tcp", "auto"]),
        default=None,
        help="How pods reach each other; auto: TCP where RDMA cannot be had.  [default: rdma where enabled]",
    ),
    click.option(
        "--nodes", type=click.IntRange(1), help="How many pods.  [default: as many as run, else gpus.default_nodes]"
    ),
)
patience = click.option(
    "--timeout",
    type=click.IntRange(0, 86400),
    default=900,
    show_default=True,
    help="Seconds to wait for the pods; 0 does not wait.",
)
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@click.command("diff")
@which
@how
@options.output
def diff(name: str, mode: Any, nodes: int | None, form: Output, **given: Any) -> None:
    """Check the cluster, and show what `deploy` would change; nothing is changed.

    The server itself says what would become of each object (a dry run). RECREATE marks what it never changes.
    """
    plan = _planned(name, given, mode, nodes).plan
    show.plan(plan, form)
    raise click.exceptions.Exit(_code(plan))


@click.command()
@which
@how
@patience
@yes
@options.check
@options.output
def deploy(
    name: str, mode: Any, nodes: int | None, timeout: float, yes: bool, check: bool, form: Output, **given: Any
) -> None:
    """Bring an environment to its cluster: check, show what changes, apply it, and wait until every pod is ready.

    Nothing of others is touched or forced. What fails half way stays, and the same command goes on from there. It asks
    before it ends pods while something trains in them, and before it makes them anew.
    """
    _go(_planned(name, given, mode, nodes), timeout, yes, check, form)


@click.command()
@which
@click.option("--nodes", type=click.IntRange(1), required=True, help="How many pods.")
@patience
@yes
@options.check
@options.output
def scale(name: str, nodes: int, timeout: float, yes: bool, check: bool, form: Output, **given: Any) -> None:
    """Change the number of pods, and nothing else; the volumes of pods that go stay.

    Asks before it ends pods while something trains in them.
    """
    from gpuctl.cluster.deploy import deployed_state, flow
    from gpuctl.cluster.environment import Asked, environment

    if given["single"]:
        raise click.UsageError("a pod that stands alone is one pod")
    cluster, file, path = _cluster(name, given)
    env = environment(file, Asked(name=given["environment"]))
    plan = flow.plan(cluster, file, _wish(given, deployed_state.mode(cluster, env), nodes))
    _go(Going(cluster, flow.scaling(plan), path, given["context"]), timeout, yes, check, form)


@click.command()
@which
@options.output
def status(name: str, form: Output, **given: Any) -> None:
    """Show how an environment stands: its pods and why they are not ready, volumes, and the ways in."""
    from gpuctl.cluster.deploy import status as standing

    cluster, file, _ = _cluster(name, given)
    found = standing.look(cluster, file, given["environment"], given["single"])
    if form == "table":
        show.status(found)
    else:
        output.data({"verdict": str(found.verdict), **asdict(found)}, form)
    raise click.exceptions.Exit(0 if found.verdict == "OK" else PROBLEMS)


@click.command()
@which
@click.option("--volumes", is_flag=True, help="The volumes, too: what they hold is lost.")
@click.option(
    "--timeout", type=options.Finite(1, 86400), default=180, show_default=True, help="Seconds a kind of object."
)
@yes
@options.check
def destroy(name: str, volumes: bool, timeout: float, yes: bool, check: bool, **given: Any) -> None:
    """Remove an environment: exactly its own objects, found by their labels. Its volumes stay unless asked for."""
    from gpuctl.cluster.deploy import destroy as destroying

    cluster, env = on_cluster(name, given)
    found = destroying.find(cluster, env)
    stay = () if volumes else found.volumes
    if not volumes:
        found = destroying.Found(found.objects, (), found.unread)
    show.removing(found, env, stay)
    if found.objects:
        _say_what_trains(cluster, env)
    if (found.objects or found.volumes) and not check:
        _ask(f"Remove {'the environment and all data in its volumes' if found.volumes else 'it'}?", yes)
        destroying.remove(cluster, env, found, _tell, timeout)
        click.echo(f"{env.name} is removed")
    raise click.exceptions.Exit(PROBLEMS if found.unread else 0)


COMMANDS = (diff, deploy, status, scale, destroy)

# ---- how it is begun ------------------------------------------------------------------------------------------------


def _cluster(name: str, given: dict[str, Any]) -> tuple[Cluster, Any, Path]:
    from gpuctl.cluster.clusterfile import locate as found
    from gpuctl.cluster.clusterfile import read
    from gpuctl.cluster.deploy import flow

    path = found.find(name)
    file = read.load(path)
    return flow.connect(file, given["context"]), file, path


def _wish(given: dict[str, Any], mode: Any, nodes: int | None) -> Wish:
    from gpuctl.cluster.deploy.flow import Wish
    from gpuctl.core.run_history import current_user

    return Wish(mode, nodes, given["environment"], current_user(), given["single"])


@dataclass(frozen=True)
class Going:
    """A plan, and where it came from."""

    cluster: Cluster
    plan: Plan
    file: Path
    context: str


def _planned(name: str, given: dict[str, Any], mode: Any, nodes: int | None) -> Going:
    from gpuctl.cluster.deploy import flow

    cluster, file, path = _cluster(name, given)
    return Going(cluster, flow.plan(cluster, file, _wish(given, mode, nodes)), path, given["context"])


def _go(going: Going, timeout: float, yes: bool, check: bool, form: Output) -> None:
    from gpuctl.cluster.deploy import flow, via_ansible

    plan = going.plan
    if form == "table" or check:
        show.plan(plan, form)
    if check:
        raise click.exceptions.Exit(_code(plan))
    flow.refuse(plan)
    if question := _question(going):
        _ask(question, yes)
    heard: list[str] = []
    order = via_ansible.Order(going.file, plan, going.context, int(timeout))
    try:
        done = via_ansible.deploy(order, lambda line: _hear(line, heard))
    except KeyboardInterrupt:
        _broken_off(plan, heard)
        raise
    if form != "table":
        output.data(done, form)
    elif timeout:
        click.echo(f"{plan.env.name}: {output.plural(plan.env.nodes, 'pod')} ready")
        show.findings([each for each in via_ansible.findings(done) if each.check == "memlock" and each.verdict != "OK"])


def _code(plan: Plan) -> int:
    return PROBLEMS if plan.failed or plan.changes_of("refused") else 0


def _question(going: Going) -> str:
    """What has to be confirmed before it is begun; empty where nothing has to."""
    from gpuctl.cluster.train import active_training

    trains = _say_what_trains(going.cluster, going.plan.env) if active_training.ends_pods(going.plan) else ""
    if anew := going.plan.changes_of("recreate"):
        return f"Make {', '.join(each.subject for each in anew)} anew, which ends its pods?"
    return f"This ends pods in which {trains}. Go on?" if trains else ""


def _say_what_trains(cluster: Cluster, env: Environment) -> str:
    """Tell what trains in the pods, and say it in a few words; empty where nothing does."""
    from gpuctl.cluster.train import active_training

    found = active_training.look(cluster, env)
    show.findings(found, err=True)
    if any(each.verdict == "FAIL" for each in found):
        return "something trains"
    return "something may train" if found else ""


def _hear(line: str, heard: list[str]) -> None:
    heard.append(line)
    click.echo(line, err=True)


def _broken_off(plan: Plan, heard: Sequence[str]) -> None:
    """What was done by then, as far as it was told."""
    from gpuctl.cluster.deploy.apply import WORDS, Applied

    made = [line.rpartition(": ")[0] for line in heard if line.rpartition(": ")[2] in WORDS.values()]
    applied = Applied(made, len(plan.changes_of("create", "change", "recreate", "remove")))
    click.echo(applied.words, err=True)
    if applied.of == len(made):
        click.echo("the pods go on starting: `gpuctl cluster status` shows how far they are", err=True)


def _ask(question: str, yes: bool) -> None:
    """No question without a terminal."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput("go on", "this has to be confirmed, and there is no terminal", "give --yes")
    click.confirm(question, abort=True, err=True)


def _tell(subject: str, words: str) -> None:
    click.echo(f"{subject}: {words}", err=True)
