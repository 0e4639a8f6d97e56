"""`gpuctl reservations`: what lists and changes reservations, and the service behind them."""

from __future__ import annotations

import click

from gpuctl.cli.shared.click_groups import Group

_COMMANDS = (
    *("add-user", "availability", "cancel", "connect", "demo", "edit", "env", "extend", "history", "jupyter", "keep"),
    *("leave", "list", "logs", "queue", "remove-user", "show", "ssh-config", "tunnel"),
)
_MEMBERS = {name: f"gpuctl.cli.reservations.commands:{name.replace('-', '_')}_" for name in _COMMANDS}
_MEMBERS["disk"] = "gpuctl.cli.reservations.disk:disk"
_MEMBERS["deploy"] = "gpuctl.cli.reservations.deploy:deploy_"
_MEMBERS["serve"] = "gpuctl.cli.reservations.serve:serve_"


@click.group(name="reservations", cls=Group, members=_MEMBERS)
def group() -> None:
    """Share the GPUs of servers: who has them until when, who waits and why."""
