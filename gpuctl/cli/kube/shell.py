"""kube shell, switching inside it, and the hidden commands that its start-up files call."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from gpuctl.cli.shared import completion

# The arguments belong to kubectl.
UNPARSED = {"ignore_unknown_options": True, "help_option_names": []}


@click.command()
@click.option("--shell", "program", metavar="PROGRAM", default="", help="bash or zsh.  [default: the login shell]")
def shell(program: str) -> None:
    """Start a shell with its own copy of the kubeconfig, so that switching contexts affects no other shell.

    The prompt shows the context and namespace, coloured by stage: red for production. In a production context,
    destructive commands of kubectl, oc and helm ask for confirmation, also in scripts and pipes. The shell has the
    aliases k, kgp, kgpa, kd, ke and kdel, and the commands kctx, kns, kpod, kwatch-resources and
    port-forward-hyperpod.
    """
    from gpuctl.kube.shell import start

    start(program, partial(click.echo, err=True))


@click.command("context")
@click.argument("name", default="", shell_complete=completion.contexts)
def switch_context(name: str) -> None:
    """Switch this shell to the context NAME ("-" for the previous one), or choose one."""
    from gpuctl.core import settings
    from gpuctl.kube import choose, switch

    switch.private_copy()
    chosen = name or choose.context(settings.load())
    if chosen:
        click.echo(f"switched to the context {switch.to_context(chosen)}")


@click.command("namespace")
@click.argument("name", default="")
@click.option("--force", is_flag=True, help="Do not check that it exists.")
def switch_namespace(name: str, force: bool) -> None:
    """Switch this shell to the namespace NAME ("-" for the previous one), or choose one."""
    from gpuctl.kube import choose, switch

    switch.private_copy()
    chosen = name or choose.namespace()
    if chosen:
        click.echo(f"switched to the namespace {switch.to_namespace(chosen, force)}")


@click.command(hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
def prompt(path: Path) -> None:
    """Write what the prompt shows to a file that the shell reads."""
    from gpuctl.kube.prompt import refresh

    refresh(path)


@click.command(hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
def remake(path: Path) -> None:
    """Rebuild the private kubeconfig of a running shell."""
    from gpuctl.kube import shell as shells

    shells.remake(path)


@click.command(hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
def leave(path: Path) -> None:
    """Save the entries that were added to an ending shell's private kubeconfig, and print where."""
    from gpuctl.kube import shell as shells

    saved_entries = shells.leave(path)
    if saved_entries:
        click.echo(str(saved_entries), err=True)


@click.command(hidden=True, context_settings=UNPARSED)
@click.argument("program", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def guard(ctx: click.Context, program: Path, arguments: tuple[str, ...]) -> None:
    """Ask for confirmation before a destructive command of kubectl, oc or helm in a production context."""
    from gpuctl.core import settings
    from gpuctl.kube.confirm import ask, question
    from gpuctl.kube.guard import PROGRAMS

    if program.name == "--help":
        click.echo(ctx.get_help())
        return
    if program.name not in PROGRAMS:
        raise click.UsageError(f"{program.name} is none of {', '.join(PROGRAMS)}")
    question_text = question(program.name, arguments, settings.load())
    confirmed = not question_text or ask(question_text)
    if confirmed is None:
        click.echo(f"gpuctl: not run, as there is no terminal to confirm on: {question_text}", err=True)
        click.echo(f"  hint: {program}, called by its path, runs without the confirmation", err=True)
        sys.exit(2)
    if not confirmed:
        click.echo("not run", err=True)
        sys.exit(1)


@click.command(hidden=True, context_settings=UNPARSED)
@click.argument("argv", metavar="PROGRAM [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(ctx: click.Context, argv: tuple[str, ...]) -> None:
    """Run a program with its own copy of the kubeconfig, and with confirmations in a production context."""
    from gpuctl.kube import shell as shells

    if argv[0] == "--help":  # every other option belongs to the program
        click.echo(ctx.get_help())
        return
    shells.run(argv, partial(click.echo, err=True))


commands = (shell, switch_context, switch_namespace, prompt, remake, leave, guard, run)
