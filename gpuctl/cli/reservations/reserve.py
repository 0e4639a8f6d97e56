"""`gpuctl reserve`: ask for GPUs, and wait until they are there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.options import Finite
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.reservations.client import Client

POLL_S = 2.0
socket_option = click.option(
    "--socket",
    type=click.Path(path_type=Path),
    default="/run/gpuctl-reservations/socket",
    show_default=True,
    envvar="GPUCTL_RESERVATIONS_SOCKET",
    help="Socket of the service, or aws:NAME for a deployment on AWS.",
)


@click.command()
@click.option("--gpus", type=click.IntRange(min=1), default=1, show_default=True, help="Number of GPUs.")
@click.option("--type", "gpu_type", help="GPU type, such as h100; needed if the site has several.")
@click.option("--hours", type=Finite(min=0), default=8.0, show_default=True, help="Length, such as 0.25 or 12.")
@click.option("--name", default="", help="Name of the reservation, which commands accept like its id.")
@click.option("--disk", help="Disk of yours that stays; made at its first use. Where sessions are pods.")
@click.option("--image", default="", help="Image of the session, where sessions are pods.  [default: the site's]")
@click.option("--jupyter", is_flag=True, help="Run Jupyter in the session, where sessions are pods.")
@click.option("--docker", is_flag=True, help="Refused: Docker would give every GPU of the node; it prints what to use.")
@options.public_keys
@click.option(
    "--agent/--no-agent", default=True, show_default=True, help="Public keys of the ssh agent may log in to a pod."
)
@click.option(
    "--add-user",
    "users",
    metavar="NAME[=GITHUB]",
    multiple=True,
    help="Let this account in, too; where sessions are pods, with the keys of this GitHub user. May be repeated.",
)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is active.")
@options.output
@socket_option
def reserve(
    gpus: int,
    gpu_type: str | None,
    hours: float,
    name: str,
    disk: str | None,
    image: str,
    jupyter: bool,
    docker: bool,
    key_files: tuple[Path, ...],
    github: Sequence[str],
    agent: bool,
    users: Sequence[str],
    wait: bool,
    form: Output,
    socket: Path,
) -> None:
    """Reserve GPUs.

    They are yours as soon as the reservation is active; until then it waits in a fair queue, and this command prints
    why. Ctrl-C ends the waiting and keeps the request.
    """
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.requests import Request

    client = Client(socket)
    keys = _keys(client, key_files, github, agent)
    request = Request(gpus, gpu_type, round(hours * 3600), name, disk, keys, image, jupyter)
    request = replace(request, github=" ".join(github), users=_words(users), docker=docker)
    row = client.submit(request)["reservation"]
    if wait:
        row = _wait(client, row)
    if form != "table":
        output.data(row, form)
    else:
        show(row)
    sys.exit(0 if row["state"] not in ("failed", "cancelled") else 3)


def _keys(client: Client, files: Sequence[Path], github: Sequence[str], agent: bool) -> str:
    """Public keys for the pod, one a line; none where sessions are accounts of hosts."""
    from gpuctl.domain import public_keys
    from gpuctl.reservations.rules.requests import DOING
    from gpuctl.workflows.eks_pod_keys import KeySources, read_keys

    if client.state().get("pods"):
        return public_keys.text(read_keys(KeySources(files, (), agent)))  # the service reads those of GitHub
    if files or github:
        wrong = "sessions of this site are accounts of hosts"
        raise InvalidInput(DOING, wrong, "leave out --key and --github: you log in as on any host")
    return ""


def _words(users: Sequence[str]) -> str:
    """People to add as the service takes them; `InvalidInput` for one that would count as several."""
    for user in users:
        if user != "".join(user.split()) or not user:
            raise InvalidInput(
                "reserve GPUs", f"--add-user {user!r} is not NAME or NAME=GITHUB", "such as --add-user bob"
            )
    return " ".join(users)


def _wait(client: Client, row: dict[str, Any]) -> dict[str, Any]:
    """Poll until it is active or over; each new reason is printed once."""
    shown = ""
    while row["state"] in ("queued", "preparing", "ending"):  # a start that failed ends before it waits again, or fails
        line = f"{row['id']} is {row['state']}" + (f", position {row['position']}" if row["position"] else "")
        line += f": {row['reason']}" if row["reason"] else ""
        line += f"; starts {start(row)}" if row["state"] == "queued" else ""
        if line != shown:
            click.echo(line, err=True)
            shown = line
        time.sleep(POLL_S)
        rows = {other["id"]: other for other in client.state()["reservations"]}
        over = {other["id"]: other for other in client.history(None)["reservations"]}
        row = rows.get(row["id"]) or over[row["id"]]
    return row


def start(row: dict[str, Any]) -> str:
    """Start of a request that waits, as a range; a promise is its end."""
    if row["promised_start"]:
        return f"{row['earliest_start'] or 'unknown'} to {row['promised_start']} (promised)"
    return f"{row['earliest_start'] or 'unknown'} to {row['latest_start'] or 'unknown'}"


def place(row: dict[str, Any]) -> str:
    """Nodes and GPUs of a reservation."""
    return " ".join(f"{slot['node']}:{','.join(map(str, slot['gpus']))}" for slot in row["slots"]) or "-"


def show(row: dict[str, Any]) -> None:
    """Print one reservation."""
    from gpuctl.workflows import reservations_connect

    until = row["expires"] or row["finished"] or "-"
    output.table(
        ["id", "state", "GPUs", "type", "where", "until", "name"],
        [[row["id"], row["state"], row["gpus"], row["gpu_type"], place(row), until, row["name"]]],
    )
    for line in _notes(row):
        click.echo(line)
    if row["state"] == "queued":
        click.echo(f"position {row['position']}, starts {start(row)}: {row['reason']}")
    elif row["state"] == "active":
        for command in reservations_connect.commands(row):
            click.echo(command)
        if os.uname().nodename in row["environment"]:
            click.echo('to use them in a shell: eval "$(gpuctl reservations env)"')
    elif row["reason"]:
        click.echo(row["reason"])


def _notes(row: dict[str, Any]) -> Iterator[str]:
    """Lines about a reservation; a service of an older version answers some of them not."""
    if row.get("warning"):
        yield _warned(row["warning"])
    if row.get("idle_end"):
        yield f"it ends early, as nobody uses it; to keep it: gpuctl reservations keep {row['id']} --hours 1"
    if row.get("users"):
        yield f"access for: {', '.join(row['users'])}" + _access(row)
    if row.get("github_trouble"):
        yield f"keys of GitHub cannot be read again, the earlier ones stay: {row['github_trouble']}"


def _access(row: dict[str, Any]) -> str:
    """Nodes on which the latest change of who has access is not in force yet, and why."""
    if row["state"] != "active" or not row["without_access"]:
        return ""
    return f"; not yet on {', '.join(row['without_access'])}" + (f": {row['access']}" if row["access"] else "")


def _warned(warning: dict[str, Any]) -> str:
    missed = ", ".join(warning["not_delivered"])
    text = f"warned at {warning['at']}, {warning['minutes']} minutes before the end"
    return text + (f"; not delivered on {missed}, where it is tried again" if missed else "")
