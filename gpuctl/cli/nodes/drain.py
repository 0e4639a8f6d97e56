"""audit --act drain and nodes undrain: keep new work away from nodes, and take back what was ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpuctl.cli.nodes import act_options
from gpuctl.cli.shared import options, output

if TYPE_CHECKING:
    from gpuctl.domain.findings import Finding
    from gpuctl.hosts.model import Target
    from gpuctl.workflows.nodes_drain import Drain, Nodes

HEAD = ("NODE", "BY", "STATE", "REASON", "NOTE")


@dataclass(frozen=True)
class UndrainRequest:
    """Node to take back, and its scheduler: Kubernetes if a context is named, else Slurm."""

    node: str
    inventory: str | None
    context: str
    timeout: float
    check: bool
    yes: bool


@click.command()
@options.as_request(
    UndrainRequest,
    act_options.node,
    options.inventory,
    options.other_context("Kubernetes context of the node.  [default: the node is Slurm's]"),
    act_options.timeout,
    act_options.ask,
)
def undrain(request: UndrainRequest) -> None:
    """Let a node take work again, if it was gpuctl that drained it.

    What somebody else has drained or cordoned stays as it is. Exit code 2 if it is not ours, 3 if it was not done.
    """
    from gpuctl.workflows import nodes_drain

    hosts = [] if request.context and request.inventory is None else [_host(request)]
    nodes = nodes_drain.Nodes(hosts, request.context, request.timeout)
    name = hosts[0].name if hosts else request.node
    drains = nodes.read({name: "taken back"}, undo=True)
    _show(drains, undo=True)
    if any(one.state == "unknown" for one in drains):
        click.echo(f"nothing was taken back: the drain of {name} is unknown", err=True)
    act_options.refuse(f"take back the drain of {name}", [one.text for one in drains if one.state == "others"])
    _carry_out(nodes, drains, "Let it take work again?", check=request.check, yes=request.yes, undo=True)


def _host(request: UndrainRequest) -> Target:
    return act_options.one_host(request.inventory, request.node)


def after_audit(findings: Sequence[Finding], hosts: Sequence[Target], context: str, timeout_s: float, yes: bool) -> int:
    """Drain the nodes with a FAIL, after a question; return the exit code of that, 0 if there are none."""
    from gpuctl.workflows import nodes_drain

    reasons = nodes_drain.reasons(findings)
    if not reasons:
        click.echo("no node has a FAIL: nothing to drain")
        return 0
    nodes = nodes_drain.Nodes(hosts, context, timeout_s)
    drains = nodes.read(reasons, undo=False)
    click.echo()
    _show(drains, undo=False)
    question = f"Drain {output.plural(sum(one.state == 'due' for one in drains), 'node')}? What runs there continues."
    return _carry_out(nodes, drains, question, check=False, yes=yes, undo=False)


def _carry_out(nodes: Nodes, drains: Sequence[Drain], question: str, *, check: bool, yes: bool, undo: bool) -> int:
    from gpuctl.workflows import nodes_drain

    unclear = [one for one in drains if one.state in ("unknown", "failed")]
    code = nodes_drain.exit_code(unclear)
    if not check and any(one.state == "due" for one in drains):
        options.confirm(question, yes)
        results, run = nodes_drain.carry_out(nodes, drains, sys.argv[1:], undo=undo)
        _show(results, undo=undo)
        click.echo(f"run {run}; `gpuctl runs show {run}` has the details")
        code = max(code, nodes_drain.exit_code(results))
    if undo:
        raise click.exceptions.Exit(code)
    return code


def _show(drains: Sequence[Drain], *, undo: bool) -> None:
    """Table of nodes; without the reasons where drains are taken back: the note has the one that the node shows."""
    rows = [HEAD, *((one.node, one.scheduler, one.state, one.reason, one.text) for one in drains)]
    head, *rest = [(*row[:3], *row[4:]) for row in rows] if undo else rows
    output.table(head, rest)
