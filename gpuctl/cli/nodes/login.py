"""nodes exec, nodes ssh and nodes nvitop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpuctl.cli.nodes import act_options
from gpuctl.cli.shared import options, output

if TYPE_CHECKING:
    from gpuctl.workflows.nodes_exec import Ran


class NodeFirst(click.Command):
    """A command with a node, whose options may stand before and after it; the rest belongs to another program.

    The rest begins with the next word that is no option, or after `--`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = self._rest(ctx, args)
        if not before or args[: -len(before)][-1:] == ["--"]:
            return super().parse_args(ctx, args)
        node, after = before[0], before[1:]
        try:
            rest = self._rest(ctx, after)
        except click.NoSuchOption as error:
            message = f"{error.message} Arguments of the program on the node stand after --."
            raise click.NoSuchOption(error.option_name, message, error.possibilities, ctx) from None
        moved = after[: len(after) - len(rest)]
        if moved[-1:] == ["--"]:
            moved.pop()
        return super().parse_args(ctx, [*args[: -len(before)], *moved, "--", node, *rest])

    def _rest(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        """Words from the first one on that is neither an option of ours nor the value of one."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        parser = click.Command(None, params=[*options], add_help_option=False).make_parser(ctx)
        return parser.parse_args([*args])[1]


@dataclass(frozen=True)
class ExecRequest:
    """Program to run on the hosts of an inventory."""

    inventory: str | None
    limit: str
    forks: int
    timeout: float
    command: tuple[str, ...]


@click.command("exec", context_settings={"allow_interspersed_args": False})
@options.as_request(
    ExecRequest,
    options.inventory,
    options.limit,
    options.visit("node"),
    click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND..."),
)
def execute(request: ExecRequest) -> None:
    """Run a program on all nodes of an inventory at once; nodes with equal output are shown together.

    Arguments reach the program as they are, no shell expands them. Exit code 1 if it fails on a node, 3 if a node was
    not reached or it ran for too long; `gpuctl runs` has the exit code of each node.
    """
    from gpuctl.hosts import plan
    from gpuctl.workflows import nodes_exec

    hosts = plan.targets(plan.find_inventory(request.inventory), request.limit)

    def on_result(ran: Ran) -> None:
        click.echo(f"{ran.node}: {ran.wrong or f'exit code {ran.code}'}", err=True)

    results, _ = nodes_exec.run_everywhere(hosts, request.command, request.forks, request.timeout, on_result)
    _show(results)
    raise click.exceptions.Exit(nodes_exec.exit_code(results))


def _show(results: Sequence[Ran]) -> None:
    """Outputs, each once with the nodes that printed it; why a node did not run it is on standard error already."""
    from gpuctl.engine import printable

    groups: dict[tuple[int | None, str], list[str]] = {}
    for ran in results:
        if ran.code is not None or ran.out.strip():
            groups.setdefault((ran.code, ran.out), []).append(ran.node)
    for (code, text), nodes in groups.items():
        state = "" if code == 0 else " (not run to its end)" if code is None else f" (exit code {code})"
        click.echo(printable(f"{output.names(nodes, 16)}{state}:"))
        for line in text.splitlines():
            click.echo(f"  {printable(line)}")


@dataclass(frozen=True)
class SshRequest:
    """Host to log in to, and a program there."""

    node: str
    inventory: str | None
    command: tuple[str, ...]


@click.command(cls=NodeFirst, context_settings={"allow_interspersed_args": False})
@options.as_request(
    SshRequest,
    options.inventory,
    act_options.node,
    click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]..."),
)
def ssh(request: SshRequest) -> None:
    """Log in to a node by ssh, with the address, user, key and options of its inventory."""
    from gpuctl.workflows import nodes_exec

    nodes_exec.log_in(act_options.one_host(request.inventory, request.node), request.command)


@dataclass(frozen=True)
class NvitopRequest:
    """Host whose GPUs nvitop shows, with arguments of nvitop."""

    node: str
    inventory: str | None
    timeout: float
    arguments: tuple[str, ...]


@click.command(cls=NodeFirst, context_settings={"allow_interspersed_args": False})
@options.as_request(
    NvitopRequest,
    options.inventory,
    act_options.timeout,
    act_options.node,
    click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENT...]"),
)
def nvitop(request: NvitopRequest) -> None:
    """Show nvitop of a node in this terminal, where it need not be installed; its arguments stand after --.

    Pinned wheels are sent to the node, checked there, and removed when nvitop ends, also after a lost connection.
    """
    from gpuctl.workflows import nodes_nvitop

    host = act_options.one_host(request.inventory, request.node)
    raise click.exceptions.Exit(nodes_nvitop.run(host, request.arguments, request.timeout))
