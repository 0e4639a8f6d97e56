"""eks create and resume: make what is missing of a cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.eks.plan import prices_option, show_costs
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import GpuctlError

if TYPE_CHECKING:
    from gpuctl.workflows.eks_plan import EksPlan

RESUME = "run `gpuctl eks resume {}`: it goes on from here; `gpuctl eks destroy {}` removes what was made"


@dataclass(frozen=True)
class CreateRequest:
    """A cluster file by name or path. `aws_profile`: "" for that of the AWS configuration."""

    cluster: str
    aws_profile: str
    prices: bool
    yes: bool


_options = options.as_request(
    CreateRequest, click.argument("cluster", metavar="NAME|FILE"), options.aws_profile, prices_option, options.sure
)


@click.command()
@_options
@report_options
def create(request: CreateRequest, form: Form, metrics: Path | None) -> None:
    """Plan, show the plan and its cost, ask, then make the cluster step by step.

    Each step looks for its object first, by gpuctl's tags: run it again after an interruption or a failure, and nothing
    is made twice. A plan with FAIL is not carried out. Applies device plugins, and waits until the nodes offer their
    GPUs and EFA interfaces in Kubernetes; exit code 1 also where that is not known.
    """
    _make(request, form, metrics, "eks create")


@click.command()
@_options
@report_options
def resume(request: CreateRequest, form: Form, metrics: Path | None) -> None:
    """Go on with a cluster whose making was interrupted or failed; like create, but refuses to begin a new one.

    A node group that AWS could not make is removed and made again, with what the file now says.
    """
    _make(request, form, metrics, "eks resume")


def _make(request: CreateRequest, form: Form, metrics: Path | None, command: str) -> None:
    from gpuctl.core.errors import InvalidInput
    from gpuctl.domain.findings import Verdict
    from gpuctl.domain.report import Report
    from gpuctl.eks import cluster_file
    from gpuctl.eks.wait import Waiter
    from gpuctl.workflows import eks_create, eks_plan

    check_folder(metrics)
    started = time.monotonic()
    cluster = cluster_file.load(cluster_file.find(request.cluster))
    aws = eks_plan.connect(cluster.region, request.aws_profile)
    with output.slow_notice("asking AWS"):
        state = eks_create.started(aws, cluster)
        if command == "eks resume" and state.first_role is None:
            wrong = f"nothing of it was made in {cluster.region}"
            raise InvalidInput(f"resume {cluster.name}", wrong, f"`gpuctl eks create {request.cluster}` begins it")
        if eks_create.is_late(state):
            hint = f"`gpuctl eks destroy {cluster.name}` removes it"
            raise InvalidInput(f"resume {cluster.name}", "its time to live is over", hint)
        planned = eks_create.plan(aws, cluster, state, request.prices)
    _show_plan(planned, sum(one.ours for one in state.objects))

    def finish(made: list[Any]) -> None:
        details = {"region": cluster.region, "made": made is not planned.findings}
        seconds = round(time.monotonic() - started, 3)
        report = Report(command, {cluster.name: list(made)}, details, seconds=seconds)
        publish(report, form, metrics, lambda: findings.show(made))
        raise click.exceptions.Exit(report.exit_code)

    if any(one.verdict is Verdict.FAIL for one in planned.findings):
        click.echo("nothing was made: AWS would refuse it", err=True)
        finish(list(planned.findings))
    options.confirm(f"Make {cluster.name} in {cluster.region}?", request.yes)
    again = RESUME.format(request.cluster, request.cluster)
    try:
        made = eks_create.make(aws, planned, Waiter(lambda line: click.echo(line, err=True)))
    except KeyboardInterrupt:
        click.echo(again, err=True)
        raise
    except GpuctlError as error:
        error.hint = f"{error.hint}; then {again}" if error.hint else again
        raise
    finish(made)


def _show_plan(planned: EksPlan, existing: int) -> None:
    from gpuctl.domain.findings import Verdict, worst_first

    shown = [one for one in planned.findings if one.verdict is not Verdict.OK]
    findings.show(worst_first(shown), err=True)
    show_costs(planned, err=True)
    if existing:
        click.echo(f"{output.plural(existing, 'object')} of it exist already", err=True)
