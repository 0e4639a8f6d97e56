"""`gpuctl reservations deploy`: the files of a deployment on AWS."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.cli.shared import options
from gpuctl.reservations.deploy import DeployRequest


@click.command(name="deploy")
@options.as_request(
    DeployRequest,
    click.option(
        "--name",
        metavar="NAME",
        default="gpu-reservations",
        show_default=True,
        help="Name of the deployment, its queue, function and table.",
    ),
    click.option("--role", "roles", metavar="NAME", multiple=True, help="Role whose sessions may send. Repeatable."),
    click.option("--user", "users", metavar="NAME[=PERSON]", multiple=True, help="IAM user who may send. Repeatable."),
    click.option("--admin", "admins", metavar="PERSON", multiple=True, help="Who may change all reservations."),
    click.option("--group", "groups", metavar="PERSON=GROUP", multiple=True, help="Group of a person. Repeatable."),
    click.option(
        "--service-role",
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="Role of the machine where `reservations serve --table` runs.",
    ),
    click.option(
        "--region",
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="AWS region.  [default: that of the AWS configuration]",
    ),
    options.aws_profile,
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write template.json and function.zip into it.  [default: print the template]",
)
def deploy_(request: DeployRequest, folder: Path | None) -> None:
    """Write a CloudFormation template and the code of its function; nothing on AWS is changed.

    People are who SQS proves: IAM users, and sessions of roles whose names nobody can choose. Their ids are read from
    IAM and are part of the code: write it again when people come or go.
    """
    from gpuctl.reservations import deploy

    files = deploy.build(request)
    if folder is None:
        click.echo(files.template, nl=False)
        click.echo(f"add --folder DIR to save it with the code of the function, {deploy.CODE}", err=True)
    else:
        deploy.write(files, folder)
        click.echo(f"{folder / deploy.TEMPLATE} and {folder / deploy.CODE} are written", err=True)
    for notice in files.notices:
        click.echo(notice, err=True)
    click.echo("nothing on AWS was changed", err=True)
