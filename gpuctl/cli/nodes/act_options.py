"""Options of the commands that act on a node, and what they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuctl.cli.shared import options
from gpuctl.core.errors import InvalidInput

if TYPE_CHECKING:
    from gpuctl.hosts.model import Target

node = click.argument("node", metavar="NODE")
consent = options.together(
    click.option(
        "--force", is_flag=True, help="Also what is not known to be yours, or disturbs others (with --reason)."
    ),
    click.option("--reason", metavar="TEXT", default="", help="For the record, and for the log of the node."),
)
ask = options.together(
    click.option("--check", is_flag=True, help="Show what would be done, and do nothing."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation."),
)
timeout = click.option(
    "--timeout", type=options.Finite(1, 3600), default=60, show_default=True, help="Time limit per node, in seconds."
)


def one_host(inventory: str | None, name: str) -> Target:
    """The host of this name; `InvalidInput` unless it is exactly one, which ssh can reach."""
    from gpuctl.core.text import named
    from gpuctl.hosts import plan

    hosts = plan.targets(plan.find_inventory(inventory), name)
    if len(hosts) != 1:
        names = named([host.name for host in hosts], 4)
        raise InvalidInput(f"act on {name}", f"it is {len(hosts)} hosts: {names}", "choose one host")
    if hosts[0].needs_ansible:
        raise InvalidInput(f"act on {name}", f"only Ansible can reach it: {hosts[0].needs_ansible}")
    return hosts[0]


def need_reason(force: bool, reason: str) -> None:
    """Refuse --force without --reason."""
    if force and not reason.strip():
        raise InvalidInput("use --force", "it needs --reason TEXT", "others read it in the log of the node")


def refuse(doing: str, reasons: Sequence[str]) -> None:
    """`InvalidInput` with all reasons, if there are any."""
    if reasons:
        raise InvalidInput(doing, "\n  ".join(reasons))
