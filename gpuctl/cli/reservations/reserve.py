"""`gpuctl reserve`: ask for GPUs, and wait until they are there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
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
    help="Socket of the service.",
)


@click.command()
@click.option("--gpus", type=click.IntRange(min=1), default=1, show_default=True, help="Number of GPUs.")
@click.option("--type", "gpu_type", help="GPU type, such as h100; needed if the site has several.")
@click.option("--hours", type=Finite(min=0), default=8.0, show_default=True, help="Length, such as 0.25 or 12.")
@click.option("--name", default="", help="Name of the reservation, which commands accept like its id.")
@click.option("--disk", help="Disk of yours that stays; made at its first use. Where sessions are pods.")
@click.option("--image", default="", help="Image of the session, where sessions are pods.  [default: the site's]")
@click.option("--jupyter", is_flag=True, help="Run Jupyter in the session, where sessions are pods.")
@options.public_keys
@click.option(
    "--agent/--no-agent", default=True, show_default=True, help="Public keys of the ssh agent may log in to a pod."
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
    key_files: tuple[Path, ...],
    github: Sequence[str],
    agent: bool,
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
        return public_keys.text(read_keys(KeySources(files, github, agent)))
    if files or github:
        wrong = "sessions of this site are accounts of hosts"
        raise InvalidInput(DOING, wrong, "leave out --key and --github: you log in as on any host")
    return ""


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
    if row.get("warning"):  # a service of an older version answers none
        click.echo(_warned(row["warning"]))
    if row.get("idle_end"):
        click.echo(f"it ends early, as nobody uses it; to keep it: gpuctl reservations keep {row['id']} --hours 1")
    if row["state"] == "queued":
        click.echo(f"position {row['position']}, starts {start(row)}: {row['reason']}")
    elif row["state"] == "active":
        for command in reservations_connect.commands(row):
            click.echo(command)
        if os.uname().nodename in row["environment"]:
            click.echo('to use them in a shell: eval "$(gpuctl reservations env)"')
    elif row["reason"]:
        click.echo(row["reason"])


def _warned(warning: dict[str, Any]) -> str:
    missed = ", ".join(warning["not_delivered"])
    text = f"warned at {warning['at']}, {warning['minutes']} minutes before the end"
    return text + (f"; not delivered on {missed}, where it is tried again" if missed else "")
