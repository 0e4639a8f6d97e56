"""cluster diff, deploy, status, scale, destroy: an environment on a live cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster import deploy_report as show
from gpuctl.cli.cluster.environment_options import selected
from gpuctl.cli.shared import findings, options, output, report
from gpuctl.cli.shared.output import Output
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.core.exit_codes import PROBLEMS

if TYPE_CHECKING:
    from gpuctl.cluster.access import PodAccess
    from gpuctl.cluster.deploy.flow import RequestedMode
    from gpuctl.cluster.deploy.model import Plan
    from gpuctl.cluster.planned_deploy import PlannedDeploy


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
apply_options = options.together(patience, take_over, yes, options.check, options.output)


@click.command("diff")
@selected
@how
@options.output
def diff(request: EnvironmentSelection, mode: RequestedMode | None, nodes: int | None, form: Output) -> None:
    """Check the cluster, and show what `deploy` would change, without changing anything.

    The changes come from a dry run on the server. RECREATE marks changes of immutable fields.
    """
    from gpuctl.cluster import planned_deploy

    plan = planned_deploy.plan(request, mode, nodes).plan
    _show_plan("cluster diff", plan, form)
    raise click.exceptions.Exit(_code(plan))


@click.command()
@selected
@how
@apply_options
def deploy(
    request: EnvironmentSelection,
    mode: RequestedMode | None,
    nodes: int | None,
    timeout: int,
    take_over: bool,
    yes: bool,
    check: bool,
    form: Output,
) -> None:
    """Deploy an environment, and wait until every pod is ready.

    First the cluster is checked and the changes are shown. Objects of others are never touched, and fields that others
    changed are overwritten only with --take-over. Before it ends pods in which something trains, or recreates pods, it
    asks for confirmation. If the cluster changes after the plan was shown, nothing is applied. After a failure, run
    the same command to continue.
    """
    from gpuctl.cluster import planned_deploy

    plan = planned_deploy.plan(request, mode, nodes)
    _carry_out("cluster deploy", plan.with_consent(take_over=take_over), timeout, yes, check, form)


@click.command()
@selected
@click.option("--nodes", type=click.IntRange(1), required=True, help="The number of pods.")
@apply_options
def scale(
    request: EnvironmentSelection, nodes: int, timeout: int, take_over: bool, yes: bool, check: bool, form: Output
) -> None:
    """Change only the number of pods; the volumes of removed pods stay.

    It asks for confirmation before it ends pods in which something trains.
    """
    from gpuctl.cluster import planned_deploy

    if request.single:
        raise click.UsageError("a standalone pod cannot be scaled")
    plan = planned_deploy.plan_scaling(request, nodes)
    _carry_out("cluster scale", plan.with_consent(take_over=take_over), timeout, yes, check, form)


@click.command()
@selected
@options.output
def status(request: EnvironmentSelection, form: Output) -> None:
    """Show an environment's pods and why they are not ready, its volumes and addresses."""
    from gpuctl.cluster import planned_deploy

    current = planned_deploy.read_status(request)
    if form == "table":
        show.status(current)
    else:
        output.data({"verdict": str(current.verdict), **asdict(current)}, form)
    raise click.exceptions.Exit(0 if current.verdict in ("OK", "WARN") else PROBLEMS)


@click.command()
@selected
@click.option("--volumes", is_flag=True, help="Remove the volumes too: their data is lost.")
@click.option(
    "--timeout",
    type=options.Finite(1, 86400),
    default=180,
    show_default=True,
    help="Time limit per kind of object, in seconds.",
)
@yes
@options.check
def destroy(request: EnvironmentSelection, volumes: bool, timeout: float, yes: bool, check: bool) -> None:
    """Remove an environment's own objects, selected by their labels; volumes only with --volumes."""
    from gpuctl.cluster.access import open_access
    from gpuctl.cluster.deploy import destroy as removal

    access = open_access(request)
    env = access.env
    objects = removal.find(access.cluster, env)
    remaining = () if volumes else objects.volumes
    if not volumes:
        objects = removal.EnvironmentObjects(objects.objects, (), objects.unread)
    show.removing(objects, env, remaining)
    if objects.objects:
        _say_what_trains(access)
    if (objects.objects or objects.volumes) and not check:
        options.confirm(f"Remove {'the environment and all data in its volumes' if objects.volumes else 'it'}?", yes)
        removal.remove(access.cluster, env, objects, _tell, timeout)
        click.echo(f"{env.name} is removed")
    raise click.exceptions.Exit(PROBLEMS if objects.unread else 0)


# ---- applying --------------------------------------------------------------------------------------------------------


def _show_plan(command: str, plan: Plan, form: Output) -> None:
    if form == "table":
        show.plan(plan)
    else:
        report.data(show.plan_document(command, plan, _code(plan)), form)


def _carry_out(command: str, planned: PlannedDeploy, timeout: int, yes: bool, check: bool, form: Output) -> None:
    from gpuctl.cluster.deploy import flow, via_ansible

    plan = planned.plan
    if form == "table" or check:
        _show_plan(command, plan, form)
    if check:
        raise click.exceptions.Exit(_code(plan))
    flow.refuse(plan)
    if question := _question(planned):
        if form != "table":
            show.plan(plan, err=True)
        options.confirm(question, yes)
    progress: list[str] = []
    request = via_ansible.DeployRequest(planned.file, plan, planned.context, timeout)
    try:
        done = via_ansible.deploy(request, lambda line: _show_progress(line, progress))
    except KeyboardInterrupt:
        _report_interruption(plan, progress)
        raise
    if form != "table":
        report.data(show.deployed_document(command, done), form)
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

    trains = _say_what_trains(planned.access) if active_training.ends_pods(planned.plan) else ""
    if recreated := planned.plan.changes_of("recreate"):
        return f"Recreate {', '.join(change.subject for change in recreated)}, which ends its pods?"
    return f"This ends pods in which {trains}. Continue?" if trains else ""


def _say_what_trains(access: PodAccess) -> str:
    """Print what trains in the pods, and return a summary; "" if nothing does."""
    from gpuctl.cluster.train import active_training

    trainings = active_training.find_active(access.cluster, access.env)
    findings.show(trainings, err=True, most=None)
    if any(finding.verdict == "FAIL" for finding in trainings):
        return "something trains"
    return "something may train" if trainings else ""


def _show_progress(line: str, progress: list[str]) -> None:
    progress.append(line)
    click.echo(line, err=True)


def _report_interruption(plan: Plan, progress: Sequence[str]) -> None:
    """Print the changes made before the interruption, according to the reported progress."""
    from gpuctl.cluster.deploy.apply import PAST_TENSE, Applied

    made = [line.rpartition(": ")[0] for line in progress if line.rpartition(": ")[2] in PAST_TENSE.values()]
    applied = Applied(made, len(plan.changes_of(*PAST_TENSE)))
    click.echo(applied.summary, err=True)
    if applied.total == len(made):
        click.echo("the pods continue to start: `gpuctl cluster status` shows their progress", err=True)


def _tell(subject: str, message: str) -> None:
    click.echo(f"{subject}: {message}", err=True)
