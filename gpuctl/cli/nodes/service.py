"""nodes restart and nodes reset."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpuctl.cli.nodes import act_options
from gpuctl.cli.shared import options

if TYPE_CHECKING:
    from gpuctl.nodes.acts.model import Consent
    from gpuctl.workflows.nodes_service import Deed

SERVICES = ("efa", "fabricmanager", "persistenced", "dcgm", "device-plugin", "kubelet")


@dataclass(frozen=True)
class RestartRequest:
    """Service of a node to restart."""

    node: str
    service: str
    inventory: str | None
    context: str
    force: bool
    reason: str
    timeout: float
    check: bool
    yes: bool


@dataclass(frozen=True)
class ResetRequest:
    """GPU of a node to reset."""

    node: str
    gpu: int
    inventory: str | None
    reason: str
    timeout: float
    check: bool
    yes: bool


@click.command()
@options.as_request(
    RestartRequest,
    act_options.node,
    click.argument("service", type=click.Choice(SERVICES)),
    options.inventory,
    options.other_context("Kubernetes context; for the device plugin."),
    act_options.consent,
    act_options.timeout,
    act_options.ask,
)
def restart(request: RestartRequest) -> None:
    """Restart a service of a node's GPUs, where all its GPUs are idle, and read it back.

    With efa, the kernel module is loaded again. A node in use needs --force and --reason; a module in use stays.
    Exit code 0 if it runs again, 1 if it failed, 2 for a refusal, 3 if it was not done or its end is unknown.
    """
    from gpuctl.nodes.acts.model import Consent
    from gpuctl.workflows import nodes_service

    act_options.need_reason(request.force, request.reason)
    consent = Consent(request.force, request.reason)
    host = act_options.one_host(request.inventory, request.node)
    deed = nodes_service.restart(host, request.service, request.context, consent, request.timeout)
    _carry_out(deed, consent, request.check, request.yes)


@click.command()
@options.as_request(
    ResetRequest,
    act_options.node,
    click.option("--gpu", type=click.IntRange(0, 63), required=True, metavar="N", help="GPU, as nvidia-smi counts."),
    options.inventory,
    click.option("--reason", metavar="TEXT", default="", help="For the record, and for the log of the node."),
    act_options.timeout,
    act_options.ask,
)
def reset(request: ResetRequest) -> None:
    """Reset a GPU that nothing uses, by nvidia-smi, and read back that the driver asks for no more.

    Exit code 0 if that is so, 1 if it failed, 2 for a refusal, 3 if it was not done or its end is unknown.
    """
    from gpuctl.nodes.acts.model import Consent
    from gpuctl.workflows import nodes_service

    host = act_options.one_host(request.inventory, request.node)
    deed = nodes_service.reset(host, request.gpu, request.timeout)
    _carry_out(deed, Consent(reason=request.reason), request.check, request.yes)


def _carry_out(deed: Deed, consent: Consent, check: bool, yes: bool) -> None:
    from gpuctl.engine import printable
    from gpuctl.workflows import nodes_service

    act_options.refuse(f"{deed.what} on {deed.host.name}", deed.against)
    click.echo(printable(f"{deed.host.name}: {deed.what}; {deed.disturbs}"))
    if check:
        return
    options.confirm("Continue?", yes)
    done, run = nodes_service.carry_out(deed, sys.argv[1:], consent)
    click.echo(printable(f"{done.state}: {deed.what}" + (f": {done.text}" if done.text else "")))
    click.echo(f"run {run}; `gpuctl runs show {run}` has the details")
    raise click.exceptions.Exit(nodes_service.exit_code(done))
