"""cluster doctor: diagnose pods that do not start, hangs of NCCL, and slow training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster.environment_options import selected
from gpuctl.cli.cluster.train import python
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.cluster.selection import EnvironmentSelection
from gpuctl.core.errors import GpuctlError
from gpuctl.core.exit_codes import PROBLEMS

if TYPE_CHECKING:
    from gpuctl.cluster.doctor.flow import Examination
    from gpuctl.cluster.doctor.model import Diagnosis, Name

SECTIONS = (
    ("evidence", "consequences"),
    ("also", "other failures"),
    ("warnings", "warnings"),
    ("unknown", "unknown"),
)


@click.command()
@selected
@click.argument("trouble", type=click.Choice(["start", "hang", "slow"]), required=False)
@click.option(
    "--timeout", type=options.Finite(10, 600), default=30, show_default=True, help="Time limit per pod, in seconds."
)
@python
@report_options
def doctor(
    request: EnvironmentSelection,
    trouble: Name | None,
    timeout: float,
    python: str,
    form: Form,
    metrics: Path | None,
) -> None:
    """Diagnose pods that do not start, NCCL hangs, or slow training (start, hang, slow).

    The checks read the cluster's objects, events and logs; for hang and slow, a small program also reads every pod.
    Nothing is changed, and nothing runs on a GPU. The result names the cause, or what could not be checked. Without an
    argument, the pods' state decides: start, or both hang and slow.
    """
    from gpuctl.cluster.doctor import model
    from gpuctl.domain.report import Report

    check_folder(metrics)
    result = _examine(request, trouble, timeout, python)
    environment = {"environment": result.name, "namespace": result.namespace, "pods": result.nodes}
    details = {**environment, "troubles": [model.as_dict(diagnosis) for diagnosis in result.diagnoses]}
    code = 0 if result.clean else PROBLEMS
    targets = {f"{result.name} {diagnosis.trouble}": model.findings(diagnosis) for diagnosis in result.diagnoses}
    publish(Report("cluster doctor", targets, details, code=code), form, metrics, lambda: _show_all(result))
    if result.undecided:
        raise GpuctlError(f"look into the pods of {result.name}", result.silent, result.hint)
    raise click.exceptions.Exit(code)


def _examine(selection: EnvironmentSelection, trouble: Name | None, timeout: float, python: str) -> Examination:
    from gpuctl.cluster.clusterfile import locate
    from gpuctl.cluster.deploy.flow import connect
    from gpuctl.cluster.doctor import flow
    from gpuctl.cluster.doctor.probe_pods import ProbeOptions

    file = locate.cluster(selection.name)
    probe = ProbeOptions(connect(file, selection.context), python, timeout)
    return flow.examine(probe, flow.DoctorRequest(file, selection.environment, selection.single, trouble))


def _show_all(result: Examination) -> None:
    for diagnosis in result.diagnoses:
        _show(result, diagnosis)


def _show(result: Examination, diagnosis: Diagnosis) -> None:
    from gpuctl.cluster.doctor.model import QUESTIONS

    question = QUESTIONS[diagnosis.trouble]
    click.echo(f"{result.name} in {result.namespace}, {output.plural(result.nodes, 'pod')}: {question}?")
    if diagnosis.cause:
        click.echo("cause:")
        findings.show(diagnosis.cause)
    else:
        click.echo("no cause found" + ("" if diagnosis.clean else "; some checks could not be done"))
    for attribute, heading in SECTIONS:
        if listed := getattr(diagnosis, attribute):
            click.echo(f"{heading}:")
            findings.show(listed)
    if diagnosis.unavailable:
        click.echo("unknown from here:")
        findings.show(diagnosis.unavailable)
    click.echo(f"checked: {', '.join(diagnosis.checked)}")
    if diagnosis.skipped:
        click.echo(f"not checked: {', '.join(diagnosis.skipped)}")
