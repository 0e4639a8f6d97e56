"""Commands of `gpuctl reservations`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gpuctl.cli.reservations.choice import chooser
from gpuctl.cli.reservations.reserve import place, show, socket_option, start
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.options import Finite
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput

Table = tuple[Sequence[str], Sequence[Sequence[object]]]  # head and rows
id_argument = click.argument("id_", metavar="[ID]", required=False)


@click.command(name="list")
@click.option("--mine", is_flag=True, help="Only your reservations.")
@options.output
@socket_option
def list_(mine: bool, form: Output, socket: Path) -> None:
    """List reservations that are active or wait."""
    from gpuctl.reservations.client import Client

    state = Client(socket).state()
    rows = [row for row in state["reservations"] if not mine or row["person"] == state["person"]]
    _rows(rows, form)


@click.command(name="queue")
@options.output
@socket_option
def queue_(form: Output, socket: Path) -> None:
    """Show who waits, why, and when each request starts at the earliest and latest."""
    from gpuctl.reservations.client import Client

    rows = [row for row in Client(socket).state()["reservations"] if row["state"] == "queued"]
    if form != "table":
        output.data(rows, form)
        return
    output.table(*queue_table(rows))


def queue_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Table of reservations that wait."""
    head = ["#", "id", "person", "GPUs", "type", "starts", "why it waits"]
    keys = ("position", "id", "person", "gpus", "gpu_type")
    return head, [[*(row[key] for key in keys), start(row), row["reason"]] for row in rows]


@click.command(name="show")
@id_argument
@options.output
@socket_option
def show_(id_: str | None, form: Output, socket: Path) -> None:
    """Show a reservation; without ID your only one."""
    from gpuctl.reservations.client import Client

    row = Client(socket).mine(id_, "show a reservation", shared=True)
    if form != "table":
        output.data(row, form)
    else:
        show(row)


@click.command(name="availability")
@options.output
@socket_option
def availability_(form: Output, socket: Path) -> None:
    """Show the free GPUs of each node."""
    from gpuctl.reservations.client import Client

    rows = with_free(Client(socket).state()["nodes"])
    if form != "table":
        output.data(rows, form)
        return
    output.table(*availability_table(rows))


def with_free(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nodes with the number of their free GPUs."""
    return [{**node, "free": node["allocated"].count(None) if node["state"] == "ready" else 0} for node in nodes]


def availability_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Table of nodes with their free GPUs, and the reason of those that take no session."""
    keys = ("name", "gpu_type", "state", "free")
    cells = [[*(row[key] for key in keys), len(row["allocated"]), row.get("reason", "")] for row in rows]
    return ["node", "type", "state", "free", "GPUs", "reason"], cells


@click.command(name="extend")
@id_argument
@click.option("--hours", type=Finite(min=0, min_open=True), required=True, help="Hours to add.")
@click.option("--over-promise", is_flag=True, help="For admins: grant it although a promised start moves.")
@options.output
@socket_option
def extend_(id_: str | None, hours: float, over_promise: bool, form: Output, socket: Path) -> None:
    """Add hours to an active reservation, unless its GPUs are promised to somebody by then."""
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.commands import Extend

    client = Client(socket)
    row = client.mine(id_, "extend a reservation", chooser())
    _result(client.send(Extend(row["id"], round(hours * 3600), over_promise)), form)


@click.command(name="keep")
@id_argument
@click.option("--hours", type=Finite(min=0, min_open=True), required=True, help="Hours without idle detection.")
@options.output
@socket_option
def keep_(id_: str | None, hours: float, form: Output, socket: Path) -> None:
    """Keep a session although nobody uses it; its end by time stays."""
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.commands import Keep

    client = Client(socket)
    row = client.mine(id_, "keep a reservation", chooser())
    _result(client.send(Keep(row["id"], round(hours * 3600))), form)


@click.command(name="edit")
@id_argument
@click.option("--name", help="New name.")
@click.option("--hours", type=Finite(min=0), help="New length of a request that waits.")
@options.output
@socket_option
def edit_(id_: str | None, name: str | None, hours: float | None, form: Output, socket: Path) -> None:
    """Change the name of a reservation, or the length of a request that waits."""
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.commands import Edit

    client = Client(socket)
    row = client.mine(id_, "edit a reservation", chooser())
    _result(client.send(Edit(row["id"], name, None if hours is None else round(hours * 3600))), form)


@click.command(name="add-user")
@click.argument("id_", metavar="ID")
@click.argument("name", metavar="NAME")
@options.public_keys
@options.output
@socket_option
def add_user_(
    id_: str, name: str, key_files: tuple[Path, ...], github: Sequence[str], form: Output, socket: Path
) -> None:
    """Let NAME, an account on the service's machine, into your reservation until it ends.

    NAME can log in, read the log and see it, and cannot extend or cancel it. Where sessions are pods, --key or --github
    name the public keys of NAME; on hosts NAME logs in as ever, and gets access to the GPUs.
    """
    from gpuctl.domain import public_keys
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.access import AddUser
    from gpuctl.workflows.eks_pod_keys import KeySources, read_keys

    keys = public_keys.text(read_keys(KeySources(key_files, ()))) if key_files else ""
    client = Client(socket)
    row = client.mine(id_, "add somebody to a reservation")
    _result(client.send(AddUser(row["id"], name, keys, " ".join(github))), form)


@click.command(name="remove-user")
@click.argument("id_", metavar="ID")
@click.argument("name", metavar="NAME")
@options.output
@socket_option
def remove_user_(id_: str, name: str, form: Output, socket: Path) -> None:
    """Take the access to your reservation from NAME, whom you have added."""
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.access import RemoveUser

    client = Client(socket)
    row = client.mine(id_, "remove somebody from a reservation")
    _result(client.send(RemoveUser(row["id"], name)), form)


@click.command(name="leave")
@click.argument("id_", metavar="ID")
@options.output
@socket_option
def leave_(id_: str, form: Output, socket: Path) -> None:
    """Give up your access to somebody else's reservation, to which its owner has added you."""
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.access import RemoveUser

    client = Client(socket)
    row = client.mine(id_, "leave a reservation", shared=True)
    _result(client.send(RemoveUser(row["id"])), form)


@click.command(name="cancel")
@id_argument
@options.output
@socket_option
def cancel_(id_: str | None, form: Output, socket: Path) -> None:
    """Give GPUs back, or leave the queue. Programs that use the GPUs are ended."""
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.commands import Cancel

    client = Client(socket)
    _result(client.send(Cancel(client.mine(id_, "cancel a reservation", chooser())["id"])), form)


@click.command(name="history")
@id_argument
@options.output
@socket_option
def history_(id_: str | None, form: Output, socket: Path) -> None:
    """List your reservations that are over; with ID every decision about it and its reason."""
    from gpuctl.reservations.client import Client

    answer = Client(socket).history(id_)
    if id_ is None:
        _rows(answer["reservations"], form)
    elif form != "table":
        output.data(answer["entries"], form)
    else:
        keys = ("at", "actor", "action", "before", "after", "reason")
        output.table(keys, [[entry[key] for key in keys] for entry in answer["entries"]])


@click.command(name="env")
@id_argument
@socket_option
def env_(id_: str | None, socket: Path) -> None:
    """Print the variables of a session for a shell: `eval "$(gpuctl reservations env)"`."""
    import os

    from gpuctl.reservations.client import Client

    row = Client(socket).mine(id_, "print the variables of a session", shared=True)
    variables = row["environment"].get(os.uname().nodename)
    if row["state"] != "active" or variables is None:
        wrong = f"reservation {row['id']} is {row['state']}, and has no session on this host"
        raise InvalidInput("print the variables of a session", wrong, "`gpuctl reservations show` prints its state")
    for name, value in {**variables, "GPUCTL_RESERVATION_ENDS": row["expires"]}.items():
        click.echo(f"export {name}={shlex.quote(value)}")


@click.command(name="tunnel", hidden=True)
@click.argument("id_", metavar="ID")
@click.option("--node", required=True, help="Node of the session.")
@socket_option
def tunnel_(id_: str, node: str, socket: Path) -> None:
    """Connect standard input and output with the sshd of a session in a pod: the ProxyCommand of `ssh-config`."""
    from gpuctl.reservations.client import Client
    from gpuctl.workflows import reservations_connect

    reservations_connect.tunnel(Client(socket), id_, node)


@click.command(name="connect")
@id_argument
@click.option("--node", help="Node of a reservation on several nodes; default: the first.")
@socket_option
def connect_(id_: str | None, node: str | None, socket: Path) -> None:
    """Log in to a node of your reservation by ssh, with its variables set."""
    from gpuctl.reservations.client import Client
    from gpuctl.workflows import reservations_connect

    client = Client(socket)
    row = client.mine(id_, "connect to a reservation", chooser(), shared=True)
    sys.exit(reservations_connect.connect(client, row, node, ()))


@click.command(name="jupyter")
@id_argument
@click.option("--token", is_flag=True, help="Print only its token.")
@options.local_port
@socket_option
def jupyter_(id_: str | None, token: bool, local: int | None, socket: Path) -> None:
    """Forward Jupyter of your reservation to 127.0.0.1 over ssh, until Ctrl-C.

    The reservation must have been made with --jupyter. The exit code is that of ssh.
    """
    from gpuctl.reservations.client import Client
    from gpuctl.workflows import reservations_connect

    client = Client(socket)
    row = client.mine(id_, "use Jupyter of a reservation", chooser(), shared=True)
    if token:
        click.echo(reservations_connect.jupyter_token(client, row))
        return
    sys.exit(reservations_connect.forward_jupyter(client, row, local, output.jupyter_address))


@click.command(name="logs")
@id_argument
@click.option("--node", help="Node of a reservation on several nodes; default: the first.")
@socket_option
def logs_(id_: str | None, node: str | None, socket: Path) -> None:
    """Print events and the end of the log of your session, where sessions are pods, also while it starts."""
    from gpuctl.reservations.client import Client

    doing, client = "read the log of a reservation", Client(socket)
    row = client.mine(id_, doing, chooser(), shared=True)
    if not row["slots"]:
        raise InvalidInput(doing, f"reservation {row['id']} is {row['state']}", "it has no pod yet")
    for line in client.logs(row["id"], node or row["slots"][0]["node"]):
        click.echo(line)


@click.command(name="ssh-config")
@id_argument
@socket_option
def ssh_config_(id_: str | None, socket: Path) -> None:
    """Print entries for a file that your ssh configuration includes."""
    from gpuctl.reservations.client import Client
    from gpuctl.workflows import reservations_connect

    client = Client(socket)
    row = client.mine(id_, "print the ssh configuration of a reservation", shared=True)
    click.echo(reservations_connect.entries(client, row), nl=False)


@click.command(name="demo")
def demo_() -> None:
    """Play a day on two simulated nodes: queue, promise, back-fill, a refused extension, a lost node, expiry."""
    from gpuctl.reservations.demo import Demo

    for line in Demo().story():
        click.echo(line)


def _rows(rows: list[dict[str, Any]], form: Output) -> None:
    if form != "table":
        output.data(rows, form)
        return
    output.table(*reservations_table(rows))


def reservations_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Table of reservations."""
    head = ["id", "person", "state", "GPUs", "type", "where", "until", "name"]
    keys = ("id", "person", "state", "gpus", "gpu_type")
    cells = [
        [*(row[key] for key in keys), place(row), row["expires"] or row["finished"] or "-", row["name"]] for row in rows
    ]
    return head, cells


def _result(answer: dict[str, Any], form: Output) -> None:
    if form != "table":
        output.data(answer["reservation"], form)
        return
    click.echo(answer["message"])
    show(answer["reservation"])
