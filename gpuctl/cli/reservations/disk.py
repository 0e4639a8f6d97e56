"""`gpuctl reservations disk`: disks that stay when a session ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.reservations.reserve import socket_option
from gpuctl.cli.shared import options, output
from gpuctl.cli.shared.click_groups import Group
from gpuctl.cli.shared.output import Output
from gpuctl.core.errors import InvalidInput
from gpuctl.core.text import named

if TYPE_CHECKING:
    from gpuctl.reservations.rules.disks import DiskCommand

MEMBERS = {
    name: f"gpuctl.cli.reservations.disk:{name.replace('list', 'list_')}"
    for name in ("clone", "create", "delete", "list", "rename")
}
name_argument = click.argument("name", metavar="NAME")
Row = Mapping[str, Any]


@click.group(name="disk", cls=Group, members=MEMBERS)
def disk() -> None:
    """Your disks, which stay when a session ends: where sessions are pods."""


@click.command(name="list")
@options.output
@socket_option
def list_(form: Output, socket: Path) -> None:
    """List your disks: their state, and the reservations that have them or wait for them."""
    from gpuctl.reservations.client import Client

    answer = Client(socket).disks()
    if answer["unknown"]:
        click.echo(f"gpuctl: sizes are unknown: {answer['unknown']}", err=True)
    _show(answer["disks"], form)


@click.command()
@name_argument
@options.output
@socket_option
def create(name: str, form: Output, socket: Path) -> None:
    """Make an empty disk. `gpuctl reserve --disk NAME` makes it, too, at its first use."""
    from gpuctl.reservations.rules.disks import CreateDisk

    _send(socket, CreateDisk(name), name, form)


@click.command()
@name_argument
@click.argument("copy", metavar="NEW")
@options.output
@socket_option
def clone(name: str, copy: str, form: Output, socket: Path) -> None:
    """Make the disk NEW with the content of the disk NAME, where the cluster's storage can.

    No reservation may have NAME or wait for it: a copy of a disk in use would be torn.
    """
    from gpuctl.reservations.rules.disks import CloneDisk

    _send(socket, CloneDisk(name, copy), copy, form)


@click.command()
@name_argument
@click.argument("new", metavar="NEW")
@options.output
@socket_option
def rename(name: str, new: str, form: Output, socket: Path) -> None:
    """Give a disk another name; its content and its volume stay. No reservation may have it or wait for it."""
    from gpuctl.reservations.rules.disks import RenameDisk

    _send(socket, RenameDisk(name, new), new, form)


@click.command()
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.output
@socket_option
def delete(name: str, yes: bool, form: Output, socket: Path) -> None:
    """Delete a disk and everything on it. No reservation may have it or wait for it."""
    from gpuctl.reservations.client import Client
    from gpuctl.reservations.rules.disks import DeleteDisk

    doing, rows = f"delete the disk {name}", _named(Client(socket).disks()["disks"], name)
    if not rows:
        raise InvalidInput(doing, f"you have no disk {name!r}", "`gpuctl reservations disk list` shows yours")
    if ids := [*filter(None, [rows[0]["attached"]]), *rows[0]["promised"]]:
        hint = "wait until the reservation is over, or cancel it"
        raise InvalidInput(doing, f"reservation {named(ids)} has it or waits for it", hint)
    claim = f" (claim {rows[0]['claim']}, {rows[0]['size']})" if rows[0]["claim"] else ""
    click.echo(f"The disk {name}{claim} and everything on it will be deleted, for good.", err=True)
    options.confirm("Delete it?", yes)
    _send(socket, DeleteDisk(name), name, form)


def _send(socket: Path, command: DiskCommand, name: str, form: Output) -> None:
    """Send a command, and show what became of the disk of this name."""
    from gpuctl.reservations.client import Client

    answer = Client(socket).send(command)
    rows = _named(answer["disks"], name)
    if form == "table":
        click.echo(answer["message"])
    _show(rows, form)


def _named(rows: Sequence[Row], name: str) -> list[Row]:
    """The disk of this name, with or without its person."""
    return [row for row in rows if name in (row["name"], row["id"])]


def _show(rows: Sequence[Row], form: Output) -> None:
    if form != "table":
        output.data(rows, form)
        return
    head = ["name", "state", "size", "in use by", "promised to", "reason"]
    cells = [
        [
            row["name"],
            row["state"],
            row["size"] or "unknown",
            row["attached"] or "-",
            " ".join(row["promised"]) or "-",
            row["reason"],
        ]
        for row in rows
    ]
    output.table(head, cells)
