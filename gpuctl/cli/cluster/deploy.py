"""cluster diff, deploy, status, scale, destroy: an environment on a live cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster import deploy_report as show
from gpuctl.cli.cluster.environment_options import on_cluster, which
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput
from gpuctl.domain.findings import PROBLEMS

if TYPE_CHECKING:
    from gpuctl.cluster.deploy.flow import PlanRequest
    from gpuctl.cluster.deploy.model import Plan
    from gpuctl.cluster.environment import Environment
    from gpuctl.edges.kube.cluster import Cluster


how = options.together(
    click.option(
        "--mode",
        type=click.Choice(["rdma", "tcp", "auto"]),
        default=None,
        help="The network between pods; auto: RDMA, or TCP if RDMA is unavailable.  "
        "[default: unchanged, else rdma if enabled]",
    ),
    click.option(
        "--nodes", type=click.IntRange(1), help="The number of pods.  [default: unchanged, else gpus.default_nodes]"
    ),
)
patience = click.option(
    "--timeout",
    type=click.IntRange(0, 86400),
    default=900,
    show_default=True,
    help="Seconds to wait for the pods; 0 does not wait.",
)
take_over = click.option(
    "--take-over", is_flag=True, help="Set back fields that somebody else changed; `diff` shows both values."
)
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


@click.command("diff")
@which
@how
@options.output
def diff(name: str, mode: Any, nodes: int | None, form: Output, **selection: Any) -> None:
    """Check the cluster, and show what `deploy` would change, without changing anything.

    The changes come from a dry run on the server. RECREATE marks changes of immutable fields.
    """
    plan = _planned(name, selection, mode, nodes).plan
    show.plan(plan, form)
    raise click.exceptions.Exit(_code(plan))


@click.command()
@which
@how
@patience
@take_over
@yes
@options.check
@options.output
def deploy(
    name: str,
    mode: Any,
    nodes: int | None,
    timeout: float,
    take_over: bool,
    yes: bool,
    check: bool,
    form: Output,
    **selection: Any,
) -> None:
    """Deploy an environment: check the cluster, show the changes, apply them, and wait until every pod is ready.

    Objects of others are never touched, and fields that others changed only with --take-over. After a failure, run
    the same command to continue.
    It asks for confirmation before it ends pods in which something trains, and before it recreates pods.
    """
    planned = _planned(name, selection, mode, nodes)
    _carry_out(planned.with_consent(take_over=take_over), timeout, yes, check, form)


@click.command()
@which
@click.option("--nodes", type=click.IntRange(1), required=True, help="The number of pods.")
@patience
@take_over
@yes
@options.check
@options.output
def scale(
    name: str,
    nodes: int,
    timeout: float,
    take_over: bool,
    yes: bool,
    check: bool,
    form: Output,
    **selection: Any,
) -> None:
    """Change only the number of pods; the volumes of removed pods stay.

    It asks for confirmation before it ends pods in which something trains.
    """
    from gpuctl.cluster.deploy import deployed_state, flow
    from gpuctl.cluster.environment import EnvironmentRequest, environment

    if selection["single"]:
        raise click.UsageError("a standalone pod cannot be scaled")
    cluster, file, path = _cluster(name, selection)
    env = environment(file, EnvironmentRequest(name=selection["environment"]))
    plan = flow.plan(cluster, file, _plan_request(selection, deployed_state.mode(cluster, env), nodes))
    planned = PlannedDeploy(cluster, flow.scaling(plan), path, selection["context"])
    _carry_out(planned.with_consent(take_over=take_over), timeout, yes, check, form)


@click.command()
@which
@options.output
def status(name: str, form: Output, **selection: Any) -> None:
    """Show an environment's pods and why they are not ready, its volumes and addresses."""
    from gpuctl.cluster.deploy import status as status_reader

    cluster, file, _ = _cluster(name, selection)
    current = status_reader.read_status(cluster, file, selection["environment"], selection["single"])
    if form == "table":
        show.status(current)
    else:
        output.data({"verdict": str(current.verdict), **asdict(current)}, form)
    raise click.exceptions.Exit(0 if current.verdict == "OK" else PROBLEMS)


@click.command()
@which
@click.option("--volumes", is_flag=True, help="Remove the volumes too: their data is lost.")
@click.option(
    "--timeout",
    type=options.Finite(1, 86400),
    default=180,
    show_default=True,
    help="Time limit per kind of object in seconds.",
)
@yes
@options.check
def destroy(name: str, volumes: bool, timeout: float, yes: bool, check: bool, **selection: Any) -> None:
    """Remove an environment: exactly its own objects, selected by their labels. Volumes stay without --volumes."""
    from gpuctl.cluster.deploy import destroy as destroying

    cluster, env = on_cluster(name, selection)
    objects = destroying.find(cluster, env)
    stay = () if volumes else objects.volumes
    if not volumes:
        objects = destroying.EnvironmentObjects(objects.objects, (), objects.unread)
    show.removing(objects, env, stay)
    if objects.objects:
        _say_what_trains(cluster, env)
    if (objects.objects or objects.volumes) and not check:
        _ask(f"Remove {'the environment and all data in its volumes' if objects.volumes else 'it'}?", yes)
        destroying.remove(cluster, env, objects, _tell, timeout)
        click.echo(f"{env.name} is removed")
    raise click.exceptions.Exit(PROBLEMS if objects.unread else 0)


COMMANDS = (diff, deploy, status, scale, destroy)

# ---- planning and applying -------------------------------------------------------------------------------------------


def _cluster(name: str, selection: dict[str, Any]) -> tuple[Cluster, Any, Path]:
    from gpuctl.cluster.clusterfile import locate, read
    from gpuctl.cluster.deploy import flow

    path = locate.find(name)
    file = read.load(path)
    return flow.connect(file, selection["context"]), file, path


def _plan_request(selection: dict[str, Any], mode: Any, nodes: int | None) -> PlanRequest:
    from gpuctl.cluster.deploy.flow import PlanRequest
    from gpuctl.core.run_history import current_user

    return PlanRequest(mode, nodes, selection["environment"], current_user(), selection["single"])


@dataclass(frozen=True)
class PlannedDeploy:
    """A plan, with its cluster, file and kubeconfig context."""

    cluster: Cluster
    plan: Plan
    file: Path
    context: str

    def with_consent(self, *, take_over: bool) -> PlannedDeploy:
        """Return it with consent, or without, to set back fields that others changed."""
        return replace(self, plan=replace(self.plan, take_over=take_over))


def _planned(name: str, selection: dict[str, Any], mode: Any, nodes: int | None) -> PlannedDeploy:
    from gpuctl.cluster.deploy import flow

    cluster, file, path = _cluster(name, selection)
    return PlannedDeploy(
        cluster, flow.plan(cluster, file, _plan_request(selection, mode, nodes)), path, selection["context"]
    )


def _carry_out(planned: PlannedDeploy, timeout: float, yes: bool, check: bool, form: Output) -> None:
    from gpuctl.cluster.deploy import flow, via_ansible

    plan = planned.plan
    if form == "table" or check:
        show.plan(plan, form)
    if check:
        raise click.exceptions.Exit(_code(plan))
    flow.refuse(plan)
    if question := _question(planned):
        _ask(question, yes)
    heard: list[str] = []
    order = via_ansible.DeployRequest(planned.file, plan, planned.context, int(timeout))
    try:
        done = via_ansible.deploy(order, lambda line: _hear(line, heard))
    except KeyboardInterrupt:
        _broken_off(plan, heard)
        raise
    if form != "table":
        output.data(done, form)
    elif timeout:
        click.echo(f"{plan.env.name}: {output.plural(plan.env.nodes, 'pod')} ready")
        deployed = via_ansible.findings(done)
        findings.show([finding for finding in deployed if finding.check == "memlock" and finding.verdict != "OK"])


def _code(plan: Plan) -> int:
    stopped = plan.failed or plan.changes_of("refused") or (plan.changes_of("take-over") and not plan.take_over)
    return PROBLEMS if stopped else 0


def _question(planned: PlannedDeploy) -> str:
    """Return the question to confirm before applying the plan, or ""."""
    from gpuctl.cluster.train import active_training

    trains = _say_what_trains(planned.cluster, planned.plan.env) if active_training.ends_pods(planned.plan) else ""
    if anew := planned.plan.changes_of("recreate"):
        return f"Recreate {', '.join(change.subject for change in anew)}, which ends its pods?"
    return f"This ends pods in which {trains}. Continue?" if trains else ""


def _say_what_trains(cluster: Cluster, env: Environment) -> str:
    """Print what trains in the pods, and return a summary; "" if nothing does."""
    from gpuctl.cluster.train import active_training

    trainings = active_training.look(cluster, env)
    findings.show(trainings, err=True, most=None)
    if any(finding.verdict == "FAIL" for finding in trainings):
        return "something trains"
    return "something may train" if trainings else ""


def _hear(line: str, heard: list[str]) -> None:
    heard.append(line)
    click.echo(line, err=True)


def _broken_off(plan: Plan, heard: Sequence[str]) -> None:
    """Print the changes made before the interruption, according to the reported progress."""
    from gpuctl.cluster.deploy.apply import PAST_TENSE, Applied

    made = [line.rpartition(": ")[0] for line in heard if line.rpartition(": ")[2] in PAST_TENSE.values()]
    applied = Applied(made, len(plan.changes_of("create", "change", "take-over", "recreate", "remove")))
    click.echo(applied.summary, err=True)
    if applied.total == len(made):
        click.echo("the pods continue to start: `gpuctl cluster status` shows their progress", err=True)


def _ask(question: str, yes: bool) -> None:
    """Ask for confirmation; without a terminal, require --yes."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput("continue", "this needs confirmation, and there is no terminal", "add --yes")
    click.confirm(question, abort=True, err=True)


def _tell(subject: str, message: str) -> None:
    click.echo(f"{subject}: {message}", err=True)
