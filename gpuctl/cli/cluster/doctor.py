"""cluster doctor: why a pod will not start, NCCL hangs, or training is slow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster.environment_options import which
from gpuctl.cli.cluster.train import python
from gpuctl.cli.shared import findings, options, output
from gpuctl.cli.shared.report import Form, check_folder, publish, report_options
from gpuctl.core.errors import GpuctlError
from gpuctl.domain.findings import PROBLEMS

if TYPE_CHECKING:
    from gpuctl.cluster.doctor.flow import Seen
    from gpuctl.cluster.doctor.model import Diagnosis

HEADS = (("evidence", "and so, too"), ("also", "also wrong"), ("warnings", "to look at"), ("unknown", "not known"))


@click.command()
@which
@click.argument("trouble", type=click.Choice(["start", "hang", "slow"]), required=False)
@click.option(
    "--timeout", type=options.Finite(10, 600), default=30, show_default=True, help="Seconds a pod may take to answer."
)
@python
@report_options
def doctor(
    name: str, trouble: Any, timeout: float, python: str, form: Form, metrics: Path | None, **given: Any
) -> None:
    """Look for the cause of a trouble: a pod will not START, NCCL HANGs, training is SLOW.

    Walks the checks that people walk, over the cluster's objects, events and logs and, for the latter two, over what a
    small program reads in every pod at the same time. Nothing is changed and nothing runs on a GPU. Ends in a cause, or
    says that none was found and what could not be looked at. Without a word for the trouble, by how the pods stand.
    """
    from gpuctl.cluster.doctor import model
    from gpuctl.domain.report import Report

    check_folder(metrics)
    seen = _look(name, trouble, timeout, python, given)
    whole = {"environment": seen.name, "namespace": seen.namespace, "pods": seen.nodes}
    details = {**whole, "troubles": [model.told(each) for each in seen.found]}
    code = 0 if all(each.clean for each in seen.found) else PROBLEMS
    targets = {f"{seen.name} {each.trouble}": model.findings(each) for each in seen.found}
    publish(Report("cluster doctor", targets, details, code=code), form, metrics, lambda: _show_all(seen))
    if seen.silent and not any(each.cause for each in seen.found):
        raise GpuctlError(f"look into the pods of {seen.name}", seen.silent, seen.hint)
    raise click.exceptions.Exit(code)


def _look(name: str, trouble: Any, timeout: float, python: str, given: dict[str, Any]) -> Seen:
    from gpuctl.cluster.clusterfile import locate as found
    from gpuctl.cluster.deploy.flow import connect
    from gpuctl.cluster.doctor import flow
    from gpuctl.cluster.doctor.probe_pods import Way

    file = found.cluster(name)
    way = Way(connect(file, given["context"]), python, timeout)
    return flow.look(way, file, given["environment"], given["single"], trouble)


def _show_all(seen: Seen) -> None:
    for diagnosis in seen.found:
        _show(seen, diagnosis)


def _show(seen: Seen, found: Diagnosis) -> None:
    from gpuctl.cluster.doctor.model import WORDS

    click.echo(f"{seen.name} in {seen.namespace}, {output.plural(seen.nodes, 'pod')}: {WORDS[found.trouble]}?")
    if found.cause:
        click.echo("cause:")
        findings.show(found.cause)
    else:
        click.echo("no cause found" + ("" if found.clean else "; not all could be looked at"))
    for attribute, words in HEADS:
        if listed := getattr(found, attribute):
            click.echo(f"{words}:")
            findings.show(listed)
    if found.aside:
        click.echo("not known from here:")
        findings.show(found.aside)
    click.echo(f"looked at: {', '.join(found.looked)}")
    if found.passed_over:
        click.echo(f"not looked at: {', '.join(found.passed_over)}")
