"""`gpuctl reservations`: what lists and changes reservations, and the service behind them."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import Group

_COMMANDS = ("availability", "cancel", "demo", "edit", "env", "extend", "history", "list", "queue", "serve", "show")
_MEMBERS = {name: f"gpuctl.cli.reservations.commands:{name}_" for name in _COMMANDS}


@click.group(name="reservations", cls=Group, members=_MEMBERS)
def group() -> None:
    """Share the GPUs of a server: who has them until when, who waits and why."""
